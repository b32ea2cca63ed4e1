/* Exponentials and logarithms that a compiler makes vectors of, the same on every processor. */
#ifndef EARMARK_ELEMENTARY_H
#define EARMARK_ELEMENTARY_H

#include <stdint.h>
#include <string.h>

#define ROUND 6755399441055744.0 /* 1.5 * 2 ** 52: to add it rounds a double to a whole number */

/* Return the exponential, to two units of its last place, of what is between -700 and 700. */
static inline double exponential(double x)
{
    double rounded = x * 1.4426950408889634 + ROUND, sum = 1.0 / 6227020800.0;
    int64_t twos, bits;
    memcpy(&twos, &rounded, sizeof twos);
    rounded -= ROUND;
    x = (x - rounded * 6.93147180369123816490e-01) - rounded * 1.90821492927058770002e-10;
    sum = sum * x + 1.0 / 479001600.0;
    sum = sum * x + 1.0 / 39916800.0;
    sum = sum * x + 1.0 / 3628800.0;
    sum = sum * x + 1.0 / 362880.0;
    sum = sum * x + 1.0 / 40320.0;
    sum = sum * x + 1.0 / 5040.0;
    sum = sum * x + 1.0 / 720.0;
    sum = sum * x + 1.0 / 120.0;
    sum = sum * x + 1.0 / 24.0;
    sum = sum * x + 1.0 / 6.0;
    sum = sum * x + 0.5;
    sum = sum * x + 1.0;
    sum = sum * x + 1.0;
    memcpy(&bits, &sum, sizeof bits);
    bits += (int64_t)((uint64_t)twos << 52);
    memcpy(&sum, &bits, sizeof sum);
    return sum;
}

/* Return the logarithm, to two units of its last place, of a normal number above 0. */
static inline double logarithm(double x)
{
    uint64_t bits, twos;
    double two, part;
    memcpy(&bits, &x, sizeof bits);
    bits += 0x3FF0000000000000 - 0x3FE6A09E667F3BCD; /* the part is around 1, not from 1 to 2 */
    twos = (bits >> 52) + (0x4338000000000000 - 1023);
    bits = (bits & 0x000FFFFFFFFFFFFF) + 0x3FE6A09E667F3BCD;
    memcpy(&two, &twos, sizeof two);
    memcpy(&part, &bits, sizeof part);
    two -= ROUND;
    double s = (part - 1.0) / (part + 1.0), z = s * s, sum = 2.0 / 25.0;
    sum = sum * z + 2.0 / 23.0;
    sum = sum * z + 2.0 / 21.0;
    sum = sum * z + 2.0 / 19.0;
    sum = sum * z + 2.0 / 17.0;
    sum = sum * z + 2.0 / 15.0;
    sum = sum * z + 2.0 / 13.0;
    sum = sum * z + 2.0 / 11.0;
    sum = sum * z + 2.0 / 9.0;
    sum = sum * z + 2.0 / 7.0;
    sum = sum * z + 2.0 / 5.0;
    sum = sum * z + 2.0 / 3.0;
    sum = 2.0 * s + s * z * sum;
    return two * 6.93147180369123816490e-01 + (sum + two * 1.90821492927058770002e-10);
}

static inline double within(double x, double low, double high)
{
    x = x > low ? x : low;
    return x < high ? x : high;
}

#endif
