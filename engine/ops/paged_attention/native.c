/* Keys and values into their pages, and the attention of single rows over pages, read where they lie. */
#include "vector.h"

#define MAX_VECTORS 16 /* a head dimension of 256 */
#define MAX_PAGE 1024

typedef struct {
  float *pool; /* [pages, 2, page_tokens, key_heads, dim] */
  int64_t page_stride, part_stride;
  int64_t page_tokens, key_heads, dim;
} Pages;

typedef struct {
  Pages in;
  const float *k, *v; /* [rows, key_heads * dim], rows by strides */
  int64_t k_stride, v_stride;
  const int64_t *pages, *offsets; /* [rows] */
  int64_t rows;
} StoreKv;

void store_kv(const StoreKv *a, int64_t part, int64_t parts) {
  const int64_t size = a->in.key_heads * a->in.dim;
  const Range mine = share(a->rows, part, parts);
  for (int64_t row = mine.begin; row < mine.end; row++) {
    float *to = a->in.pool + a->pages[row] * a->in.page_stride + a->offsets[row] * size;
    memcpy(to, a->k + row * a->k_stride, (size_t)size * sizeof(float));
    memcpy(to + a->in.part_stride, a->v + row * a->v_stride, (size_t)size * sizeof(float));
  }
}

/* Softmax over the keys so far, kept as the largest score, the sum of exponentials and the weighted values. */
typedef struct {
  float largest, total;
  floats values[MAX_VECTORS];
} Soft;

static inline __attribute__((always_inline)) void take_page(
    const int vectors, Soft *soft, const float *q, const float *keys, const float *values, int64_t count, int64_t stride,
    float scaling) {
  float scores[MAX_PAGE + WIDTH];
  float largest = soft->largest;
  for (int64_t i = 0; i < count; i++) {
    floats products = {0};
    for (int n = 0; n < vectors; n++) products += ((const floats *)q)[n] * ((const floats *)(keys + i * stride))[n];
    scores[i] = sum(products) * scaling;
    largest = scores[i] > largest ? scores[i] : largest;
  }
  const float kept = expf(soft->largest - largest);
  soft->largest = largest;
  soft->total *= kept;
  for (int n = 0; n < vectors; n++) soft->values[n] *= kept;
  for (int64_t i = 0; i < count; i += WIDTH) *(floats *)(scores + i) = exponential(*(floats *)(scores + i) - largest);
  for (int64_t i = 0; i < count; i++) {
    soft->total += scores[i];
    for (int n = 0; n < vectors; n++) soft->values[n] += scores[i] * ((const floats *)(values + i * stride))[n];
  }
}

static inline __attribute__((always_inline)) void attend_head(
    const int vectors, const Pages *in, const float *q, const int64_t *pages, int64_t tokens, int64_t key_head, float *out) {
  Soft soft = {.largest = -INFINITY, .total = 0};
  for (int n = 0; n < vectors; n++) soft.values[n] = (floats){0};
  const float scaling = 1.0f / sqrtf((float)in->dim);
  for (int64_t done = 0; done < tokens; done += in->page_tokens) {
    const float *keys = in->pool + pages[done / in->page_tokens] * in->page_stride + key_head * in->dim;
    const int64_t count = tokens - done < in->page_tokens ? tokens - done : in->page_tokens;
    take_page(vectors, &soft, q, keys, keys + in->part_stride, count, in->key_heads * in->dim, scaling);
  }
  for (int n = 0; n < vectors; n++) ((floats *)out)[n] = soft.values[n] / soft.total;
}

typedef struct {
  Pages in;
  const float *q; /* [count, heads, dim]: row b is the newest token of sequence b */
  int64_t heads, count;
  const int64_t *const *tables; /* [count], the pages of each sequence in order */
  const int64_t *lengths;       /* [count] */
  float *out;                   /* [count, heads, dim] */
} AttendSingles;

void attend_singles(const AttendSingles *a, int64_t part, int64_t parts) {
  const int64_t group = a->heads / a->in.key_heads, dim = a->in.dim;
  const Range mine = share(a->count * a->heads, part, parts);
  for (int64_t i = mine.begin; i < mine.end; i++) {
    const int64_t *pages = a->tables[i / a->heads], length = a->lengths[i / a->heads], head = i % a->heads / group;
    const float *q = a->q + i * dim;
    float *out = a->out + i * dim;
    switch (dim / WIDTH) {
      case 2: attend_head(2, &a->in, q, pages, length, head, out); break;
      case 4: attend_head(4, &a->in, q, pages, length, head, out); break;
      case 8: attend_head(8, &a->in, q, pages, length, head, out); break;
      case 16: attend_head(16, &a->in, q, pages, length, head, out); break;
      default: attend_head((int)(dim / WIDTH), &a->in, q, pages, length, head, out);
    }
  }
}
