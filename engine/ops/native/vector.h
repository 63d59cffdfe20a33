/* Sixteen floats at a time, on whatever vector unit the compiler aims at. Knows no operation.

   Every operation takes one struct of 8-byte members (pointers, int64_t, double), in the order in which native.call is given them, and
   does part `part` of `parts` equal ones of its work. */
#pragma once

#include <math.h>
#include <stdint.h>
#include <string.h>

#define WIDTH 16

/* Loads and stores need no alignment and may look at any memory. */
/* What part `part` does of `count` independent pieces: [begin, end). */
typedef struct {
  int64_t begin, end;
} Range;

static inline Range share(int64_t count, int64_t part, int64_t parts) {
  return (Range){count * part / parts, count * (part + 1) / parts};
}

typedef float floats __attribute__((vector_size(64), aligned(4), may_alias));
typedef int32_t ints __attribute__((vector_size(64), aligned(4), may_alias));

static inline floats spread(float x) { return x - (floats){0}; }

/* Lane by lane: `yes` where the comparison held, else `no`. */
static inline floats choose(ints held, floats yes, floats no) {
  return (floats)((held & (ints)yes) | (~held & (ints)no));
}

/* By halves, so that no addition waits for more than three others. */
static inline float sum(floats x) {
  typedef float eight __attribute__((vector_size(32)));
  typedef float four __attribute__((vector_size(16)));
  eight halves[2];
  memcpy(halves, &x, sizeof(x));
  const eight half = halves[0] + halves[1];
  four quarters[2];
  memcpy(quarters, &half, sizeof(half));
  const four quarter = quarters[0] + quarters[1];
  return (quarter[0] + quarter[2]) + (quarter[1] + quarter[3]);
}

/* e^x, at most 2 units in the last place off; 0 where that is no normal number, infinity where it is too large. NaN stays NaN.
   Source: range reduction by Cody and Waite; the polynomial is Cephes' expf. */
static inline floats exponential(floats x) {
  const floats low = spread(-87.3365402f), high = spread(88.3762589f), given = x;
  x = choose(x < low, low, x);
  x = choose(x > high, high, x);
  const floats rounding = spread(12582912.0f); /* 1.5 * 2^23: adding it leaves the integer in the low bits */
  const floats shifted = x * 1.44269504f + rounding;
  const floats n = shifted - rounding;
  const floats r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
  floats p = r * 1.9875691500e-4f + 1.3981999507e-3f;
  p = p * r + 8.3334519073e-3f;
  p = p * r + 4.1665795894e-2f;
  p = p * r + 1.6666665459e-1f;
  p = p * r + 5.0000001201e-1f;
  const floats mantissa = p * (r * r) + r + 1.0f;
  const ints exponent = (((ints)shifted - (ints)rounding) + 127) << 23;
  const floats found = choose(given > high, spread(INFINITY), mantissa * (floats)exponent);
  return choose(given < low, spread(0.0f), found);
}

static inline floats sigmoid(floats x) { return 1.0f / (1.0f + exponential(-x)); }

static inline floats silu(floats x) { return x * sigmoid(x); }

static inline floats load(const float *from) { return *(const floats *)from; }

static inline void store(float *to, floats x) { *(floats *)to = x; }

/* `count` floats, 0 <= count < WIDTH, zeros behind them. */
static inline floats load_some(const float *from, int64_t count) {
  floats x = {0};
  memcpy(&x, from, (size_t)count * sizeof(float));
  return x;
}

static inline void store_some(float *to, floats x, int64_t count) {
  memcpy(to, &x, (size_t)count * sizeof(float));
}
