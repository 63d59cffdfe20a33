/* The likeliest token of each row. */
#include <float.h>

#include "vector.h"

typedef struct {
  const float *logits; /* [rows, count], rows `stride` apart */
  int64_t rows, stride, count;
  int64_t *out; /* [rows] */
} Greedy;

void greedy(const Greedy *a, int64_t part, int64_t parts) {
  const Range mine = share(a->rows, part, parts);
  for (int64_t row = mine.begin; row < mine.end; row++) {
    const float *x = a->logits + row * a->stride;
    float best = -INFINITY;
    int64_t token = -1;
    for (int64_t i = 0; i < a->count; i++)
      if (x[i] > best && x[i] <= FLT_MAX) best = x[i], token = i;
    a->out[row] = token;
  }
}
