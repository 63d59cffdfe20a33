/* The rotary embedding: its table of angles, and turning heads by it. */
#include "vector.h"


typedef struct {
  const int64_t *positions;  /* [tokens] */
  const float *frequencies; /* [half] */
  int64_t tokens, half;
  float *cosines, *sines; /* [tokens, half] */
} RopeTable;

void rope_table(const RopeTable *a, int64_t part, int64_t parts) {
  const Range mine = share(a->tokens, part, parts);
  for (int64_t token = mine.begin; token < mine.end; token++)
    for (int64_t i = 0; i < a->half; i++) {
      const float angle = (float)a->positions[token] * a->frequencies[i];
      a->cosines[token * a->half + i] = cosf(angle);
      a->sines[token * a->half + i] = sinf(angle);
    }
}

typedef struct {
  const float *x; /* [tokens, heads, size], its first two dimensions by strides */
  int64_t tokens, token_stride, heads, head_stride, size;
  const float *cosines, *sines; /* [tokens, half] */
  int64_t half;
  float *out; /* [tokens, heads, size] */
} ApplyRope;

void apply_rope(const ApplyRope *a, int64_t part, int64_t parts) {
  const int64_t half = a->half, size = a->size;
  const Range mine = share(a->tokens, part, parts);
  for (int64_t token = mine.begin; token < mine.end; token++) {
    const float *c = a->cosines + token * half, *s = a->sines + token * half;
    for (int64_t head = 0; head < a->heads; head++) {
      const float *first = a->x + token * a->token_stride + head * a->head_stride, *second = first + half;
      float *to = a->out + (token * a->heads + head) * size;
      for (int64_t i = 0; i < half; i++) {
        to[i] = first[i] * c[i] - second[i] * s[i];
        to[half + i] = second[i] * c[i] + first[i] * s[i];
      }
      memcpy(to + 2 * half, first + 2 * half, (size_t)(size - 2 * half) * sizeof(float));
    }
  }
}
