/* Runs operations, one or a recorded row of them, with one thread or several; or in the background. */
#ifdef _OPENMP
#include <omp.h>
#endif
#include <pthread.h>
#include <sched.h>
#include <stdint.h>

#define SPINS 4096 /* of a waiting thread before it lets others have the processor */
#define LOOKS 1024 /* of a waiting thread, others in between, before it sleeps */

typedef void (*Operation)(const void *arguments, int64_t part, int64_t parts);

typedef struct {
  const Operation *operations;
  const void *const *arguments;
  int64_t count, threads;
} Replay;

/* Threads wait here for each other; `arrived` counts over all rounds. OpenMP's own barrier may put them to sleep, which takes longer
   than most operations. */
static void meet(int64_t *arrived, int64_t round, int64_t threads) {
  __atomic_add_fetch(arrived, 1, __ATOMIC_ACQ_REL);
  for (int64_t spins = 0; __atomic_load_n(arrived, __ATOMIC_ACQUIRE) < round * threads; spins++)
    if (spins > SPINS) sched_yield();
}

void replay(const Replay *a) {
  if (a->threads == 1) {
    for (int64_t i = 0; i < a->count; i++) a->operations[i](a->arguments[i], 0, 1);
    return;
  }
  int64_t arrived = 0;
#pragma omp parallel num_threads(a->threads)
  {
    int64_t part = 0, parts = 1;
#ifdef _OPENMP
    part = omp_get_thread_num(), parts = omp_get_num_threads();
#endif
    for (int64_t i = 0; i < a->count; i++) {
      a->operations[i](a->arguments[i], part, parts);
      if (i + 1 < a->count) meet(&arrived, i + 1, parts);
    }
  }
}

/* The background: threads that compute one replay after the other, each helped by whoever waits for its end. An operation's parts are
   claimed one by one, in the order of operations, so it doesn't matter how many threads are there, or when they come. Replays are
   numbered from 1 on. */
static struct {
  pthread_mutex_t lock;
  pthread_cond_t changed;
  Replay replay;
  int64_t begun, inside;       /* number of the last replay; threads that have a copy of it. Changed under the lock */
  int64_t workers;             /* that there are */
  int64_t claimed, completed;  /* parts of the replay */
} background = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static int64_t seen(const int64_t *number) { return __atomic_load_n(number, __ATOMIC_ACQUIRE); }

/* Does parts of a replay until all are claimed. */
static void help(const Replay *a) {
  const int64_t total = a->count * a->threads;
  for (int64_t claim; (claim = __atomic_fetch_add(&background.claimed, 1, __ATOMIC_RELAXED)) < total;) {
    const int64_t operation = claim / a->threads, before = operation * a->threads;
    for (int64_t spins = 0; seen(&background.completed) < before; spins++)
      if (spins > SPINS) sched_yield();
    a->operations[operation](a->arguments[operation], claim - before, a->threads);
    __atomic_add_fetch(&background.completed, 1, __ATOMIC_ACQ_REL);
  }
}

/* The replay of that number, if it is the last one still; else its count is 0. `leave` follows. */
static Replay enter(int64_t number) {
  Replay copy = {0};
  pthread_mutex_lock(&background.lock);
  background.inside++;
  if (number == background.begun) copy = background.replay;
  pthread_mutex_unlock(&background.lock);
  return copy;
}

static void leave(void) { __atomic_sub_fetch(&background.inside, 1, __ATOMIC_ACQ_REL); }

/* Looks again and again for a while, because to be woken takes as long as many operations. */
static int64_t await_next(int64_t number) {
  for (int64_t looks = 0; looks < LOOKS && seen(&background.begun) == number; looks++) sched_yield();
  pthread_mutex_lock(&background.lock);
  while (background.begun == number) pthread_cond_wait(&background.changed, &background.lock);
  number = background.begun;
  pthread_mutex_unlock(&background.lock);
  return number;
}

static void *work(void *place) {
  for (int64_t number = 0;;) {
    number = await_next(number);
    const Replay a = enter(number);
    if ((int64_t)place + 1 < a.threads) help(&a);
    leave();
  }
  return NULL;
}

/* Helps, and waits until that replay has ended. */
void end(int64_t number) {
  const Replay a = enter(number);
  if (a.count) {
    help(&a);
    while (seen(&background.completed) < a.count * a.threads) sched_yield();
  }
  leave();
}

/* Begins a replay once the last one has ended, and returns its number. Of its threads one is whoever calls `end`. For one caller at a
   time; what `a` points at must stay in place until it has ended. */
int64_t begin(const Replay *a) {
  end(background.begun);
  for (pthread_t thread; background.workers + 1 < a->threads; background.workers++) {
    if (pthread_create(&thread, NULL, work, (void *)background.workers)) break;
    pthread_detach(thread);
  }
  pthread_mutex_lock(&background.lock);
  while (seen(&background.inside)) {
    pthread_mutex_unlock(&background.lock);
    sched_yield();
    pthread_mutex_lock(&background.lock);
  }
  background.replay = *a;
  background.claimed = background.completed = 0;
  __atomic_add_fetch(&background.begun, 1, __ATOMIC_RELEASE);
  const int64_t number = background.begun;
  pthread_cond_broadcast(&background.changed);
  pthread_mutex_unlock(&background.lock);
  return number;
}
