/* Convolution, gates, delta rule and gated norm of one pass over the tokens, state by state. What a token needs of its neighbours
   stays in the first-level cache, and no intermediate is written. */
#include <stdbool.h>

#include "vector.h"

#define MAX_TAPS 8
#define MAX_DIM 256 /* of a key or value head */

typedef struct {
  int64_t begin, end, lane, fresh;
} Span;

typedef struct {
  const float *qkv, *z, *b, *a; /* [T, ...], rows `row_stride` floats apart */
  int64_t row_stride;
  const float *taps;            /* [channels, kernel] */
  const float *a_log, *dt_bias; /* [heads] */
  const float *norm;            /* [value_dim] */
  double eps;
  float *windows;        /* [lanes, channels, kernel - 1] */
  int64_t window_stride; /* floats from lane to lane */
  float *states;         /* [lanes, heads, key_dim, value_dim] */
  int64_t state_stride;
  int64_t key_heads, heads, key_dim, value_dim, kernel;
  const Span *spans;
  int64_t count;
  float *out; /* [T, heads, value_dim] */
} Net;

/* `size` channels from `channel` on: their taps and the inputs before the span, tap by tap and column by column. */
typedef struct {
  int64_t channel, size;
  float taps[MAX_TAPS][MAX_DIM];
  float before[MAX_TAPS][MAX_DIM];
} Channels;

static void open_channels(Channels *of, const Net *net, const Span *span, int64_t channel, int64_t size) {
  const int64_t columns = net->kernel - 1;
  const float *window = net->windows + span->lane * net->window_stride + channel * columns;
  of->channel = channel;
  of->size = size;
  for (int64_t c = 0; c < size; c++) {
    for (int64_t j = 0; j < net->kernel; j++) of->taps[j][c] = net->taps[(channel + c) * net->kernel + j];
    for (int64_t j = 0; j < columns; j++) of->before[j][c] = span->fresh ? 0.0f : window[c * columns + j];
  }
}

/* The input column `at` rows into the span; those before it have negative numbers. */
static inline const float *column(const Channels *of, const Net *net, const Span *span, int64_t at) {
  if (at < 0) return of->before[net->kernel - 1 + at];
  return net->qkv + (span->begin + at) * net->row_stride + of->channel;
}

static inline void convolve(const Channels *of, const Net *net, const Span *span, int64_t at, float *out) {
  for (int64_t c = 0; c < of->size; c += WIDTH) {
    floats total = {0};
    for (int64_t j = 0; j < net->kernel; j++)
      total += *(const floats *)(column(of, net, span, at - net->kernel + 1 + j) + c) * load(of->taps[j] + c);
    *(floats *)(out + c) = silu(total);
  }
}

static void close_channels(const Channels *of, const Net *net, const Span *span) {
  const int64_t columns = net->kernel - 1, length = span->end - span->begin;
  float *window = net->windows + span->lane * net->window_stride + of->channel * columns;
  for (int64_t j = 0; j < columns; j++) {
    const float *from = column(of, net, span, length - columns + j);
    for (int64_t c = 0; c < of->size; c++) window[c * columns + j] = from[c];
  }
}

static inline float dot(const float *x, const float *y, int64_t size) {
  floats total = {0};
  for (int64_t i = 0; i < size; i += WIDTH) total += load(x + i) * load(y + i);
  return sum(total);
}

static inline void scale(float *x, float factor, int64_t size) {
  for (int64_t i = 0; i < size; i += WIDTH) *(floats *)(x + i) *= factor;
}

/* The rule for one token, with `vectors` (a constant where this is inlined) vectors a row of the state:
   state = decay * state + k ⊗ error; v becomes the output. */
static inline __attribute__((always_inline)) void delta_rule(
    const int vectors, const float *q, const float *k, float *v, float decay, float beta, float *state, int64_t key_dim) {
  floats by_key[2][MAX_DIM / WIDTH], by_query[2][MAX_DIM / WIDTH];
  for (int n = 0; n < vectors; n++) by_key[0][n] = by_key[1][n] = by_query[0][n] = by_query[1][n] = (floats){0};
  floats *rows = (floats *)state;
  for (int64_t i = 0; i < key_dim; i += 2)
    for (int half = 0; half < 2; half++)
      for (int n = 0; n < vectors; n++) {
        const floats row = rows[(i + half) * vectors + n];
        by_key[half][n] += k[i + half] * row;
        by_query[half][n] += q[i + half] * row;
      }
  const float own = dot(q, k, key_dim);
  floats error[MAX_DIM / WIDTH];
  for (int n = 0; n < vectors; n++) {
    floats *value = (floats *)v + n;
    error[n] = beta * (*value - decay * (by_key[0][n] + by_key[1][n]));
    *value = decay * (by_query[0][n] + by_query[1][n]) + own * error[n];
  }
  for (int64_t i = 0; i < key_dim; i++)
    for (int n = 0; n < vectors; n++) rows[i * vectors + n] = decay * rows[i * vectors + n] + k[i] * error[n];
}

static void apply_rule(const float *q, const float *k, float *v, float decay, float beta, float *state, const Net *net) {
  switch (net->value_dim / WIDTH) {
    case 1: delta_rule(1, q, k, v, decay, beta, state, net->key_dim); break;
    case 2: delta_rule(2, q, k, v, decay, beta, state, net->key_dim); break;
    case 4: delta_rule(4, q, k, v, decay, beta, state, net->key_dim); break;
    case 8: delta_rule(8, q, k, v, decay, beta, state, net->key_dim); break;
    default: delta_rule((int)(net->value_dim / WIDTH), q, k, v, decay, beta, state, net->key_dim);
  }
}

static inline void gated_norm(const float *v, const float *z, const Net *net, float *out) {
  const float scaling = 1.0f / sqrtf(dot(v, v, net->value_dim) / (float)net->value_dim + (float)net->eps);
  for (int64_t i = 0; i < net->value_dim; i += WIDTH)
    *(floats *)(out + i) = load(v + i) * scaling * load(net->norm + i) * silu(load(z + i));
}

static float softplus(float x) { return x > 20.0f ? x : log1pf(expf(x)); }

/* One key head of one span, with all value heads that read it. */
static void run_head(const Net *net, const Span *span, int64_t key_head) {
  const int64_t group = net->heads / net->key_heads, keys = net->key_heads * net->key_dim;
  Channels of_q, of_k, of_v[group];
  open_channels(&of_q, net, span, key_head * net->key_dim, net->key_dim);
  open_channels(&of_k, net, span, keys + key_head * net->key_dim, net->key_dim);
  for (int64_t g = 0; g < group; g++)
    open_channels(&of_v[g], net, span, 2 * keys + (key_head * group + g) * net->value_dim, net->value_dim);
  float *states = net->states + span->lane * net->state_stride + key_head * group * net->key_dim * net->value_dim;
  if (span->fresh) memset(states, 0, (size_t)(group * net->key_dim * net->value_dim) * sizeof(float));
  float q[MAX_DIM], k[MAX_DIM], v[MAX_DIM];
  for (int64_t at = 0; at < span->end - span->begin; at++) {
    const int64_t row = span->begin + at;
    convolve(&of_q, net, span, at, q);
    convolve(&of_k, net, span, at, k);
    scale(q, 1.0f / sqrtf((dot(q, q, net->key_dim) + 1e-6f) * (float)net->key_dim), net->key_dim);
    scale(k, 1.0f / sqrtf(dot(k, k, net->key_dim) + 1e-6f), net->key_dim);
    for (int64_t g = 0; g < group; g++) {
      const int64_t head = key_head * group + g, gate = row * net->row_stride + head;
      convolve(&of_v[g], net, span, at, v);
      const float decay = expf(-expf(net->a_log[head]) * softplus(net->a[gate] + net->dt_bias[head]));
      const float beta = 1.0f / (1.0f + expf(-net->b[gate]));
      apply_rule(q, k, v, decay, beta, states + g * net->key_dim * net->value_dim, net);
      gated_norm(v, net->z + row * net->row_stride + head * net->value_dim, net,
                 net->out + (row * net->heads + head) * net->value_dim);
    }
  }
  close_channels(&of_q, net, span);
  close_channels(&of_k, net, span);
  for (int64_t g = 0; g < group; g++) close_channels(&of_v[g], net, span);
}

void gated_delta_net(const Net *net, int64_t part, int64_t parts) {
  const Range mine = share(net->count * net->key_heads, part, parts);
  for (int64_t i = mine.begin; i < mine.end; i++) run_head(net, &net->spans[i / net->key_heads], i % net->key_heads);
}
