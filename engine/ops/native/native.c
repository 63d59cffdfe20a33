/* Runs operations, one or a recorded row of them, with one thread or several. */
#ifdef _OPENMP
#include <omp.h>
#endif
#include <sched.h>
#include <stdint.h>

#define SPINS 4096 /* of a waiting thread before it lets others have the processor */

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
