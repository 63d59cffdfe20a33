/* Products of a few rows with a packed matrix: bound by reading the matrix, which is read once and in order.

   A matrix [depth, columns] is packed into panels of PANEL columns, [panels, depth, PANEL], the last one padded with zeros; as bf16
   where that keeps every value, else as fp32. */
#include <stdbool.h>

#include "vector.h"

#define PANEL 32
#define ROWS 8 /* whose sums stay in registers */

/* Sixteen bf16 numbers as floats: the upper half of the same bits. */
static inline floats widen(const uint16_t *from) {
  typedef uint16_t halves __attribute__((vector_size(32), aligned(2), may_alias));
  return (floats)(__builtin_convertvector(*(const halves *)from, ints) << 16);
}

static inline floats weights(const bool half, const void *panel, int64_t at) {
  return half ? widen((const uint16_t *)panel + at) : load((const float *)panel + at);
}

static inline const void *panel_at(const void *panels, int64_t half, int64_t depth, int64_t number) {
  return (const char *)panels + number * depth * PANEL * (half ? 2 : 4);
}

typedef struct {
  const float *x; /* [rows, depth], rows `stride` apart */
  int64_t stride;
  const void *panels;
  int64_t half;          /* whether they are bf16 */
  const float *residual; /* [rows, columns] or null */
  int64_t rows, depth, columns;
  float *out; /* [rows, columns] */
} Linear;

static inline void put(const Linear *a, int64_t row, int64_t column, floats x) {
  if (column >= a->columns) return;
  const int64_t at = row * a->columns + column, left = a->columns - column;
  if (left < WIDTH) {
    if (a->residual) x += load_some(a->residual + at, left);
    store_some(a->out + at, x, left);
  } else {
    if (a->residual) x += load(a->residual + at);
    store(a->out + at, x);
  }
}

/* One panel for `rows` rows from `first` on. `half` and `rows` are constants where this is inlined. */
static inline __attribute__((always_inline)) void product(const Linear *a, const bool half, const int rows, int64_t first,
                                                          int64_t number) {
  const void *panel = panel_at(a->panels, half, a->depth, number);
  const int chains = rows > 2 ? 1 : 4 / rows; /* enough sums to hide what an addition takes */
  floats left[4][ROWS], right[4][ROWS];
  for (int chain = 0; chain < chains; chain++)
    for (int t = 0; t < rows; t++) left[chain][t] = right[chain][t] = (floats){0};
  const float *x = a->x + first * a->stride;
  int64_t k = 0;
  for (; k + chains <= a->depth; k += chains)
    for (int chain = 0; chain < chains; chain++) {
      const floats w0 = weights(half, panel, (k + chain) * PANEL), w1 = weights(half, panel, (k + chain) * PANEL + WIDTH);
      for (int t = 0; t < rows; t++) {
        left[chain][t] += x[t * a->stride + k + chain] * w0;
        right[chain][t] += x[t * a->stride + k + chain] * w1;
      }
    }
  for (; k < a->depth; k++)
    for (int t = 0; t < rows; t++) {
      left[0][t] += x[t * a->stride + k] * weights(half, panel, k * PANEL);
      right[0][t] += x[t * a->stride + k] * weights(half, panel, k * PANEL + WIDTH);
    }
  for (int t = 0; t < rows; t++) {
    for (int chain = 1; chain < chains; chain++) left[0][t] += left[chain][t], right[0][t] += right[chain][t];
    put(a, first + t, number * PANEL, left[0][t]);
    put(a, first + t, number * PANEL + WIDTH, right[0][t]);
  }
}

static inline __attribute__((always_inline)) void panel_product(const Linear *a, const bool half, int64_t number) {
  for (int64_t t = 0; t < a->rows; t += ROWS) switch (a->rows - t) {
      case 1: product(a, half, 1, t, number); break;
      case 2: product(a, half, 2, t, number); break;
      case 3: product(a, half, 3, t, number); break;
      case 4: product(a, half, 4, t, number); break;
      case 5: product(a, half, 5, t, number); break;
      case 6: product(a, half, 6, t, number); break;
      case 7: product(a, half, 7, t, number); break;
      default: product(a, half, ROWS, t, number);
    }
}

/* out = residual + x @ matrix. */
void linear(const Linear *a, int64_t part, int64_t parts) {
  const Range mine = share((a->columns + PANEL - 1) / PANEL, part, parts);
  for (int64_t number = mine.begin; number < mine.end; number++)
    if (a->half)
      panel_product(a, true, number);
    else
      panel_product(a, false, number);
}

typedef struct {
  const void *panels;
  int64_t half, depth, columns;
  float *out; /* [depth, columns] */
} Unpack;

/* The matrix as it was before it was packed. */
void unpack(const Unpack *a, int64_t part, int64_t parts) {
  const Range mine = share(a->depth, part, parts);
  for (int64_t k = mine.begin; k < mine.end; k++)
    for (int64_t column = 0; column < a->columns; column += WIDTH) {
      const void *panel = panel_at(a->panels, a->half, a->depth, column / PANEL);
      const floats x = weights(a->half, panel, k * PANEL + column % PANEL);
      const int64_t left = a->columns - column;
      if (left >= WIDTH)
        store(a->out + k * a->columns + column, x);
      else
        store_some(a->out + k * a->columns + column, x, left);
    }
}
