"use strict";

/* Matrix product with the second factor transposed: out[i][j] = sum over k of a[i][k] * b[j][k].

   Each matrix is {data, at, stride}: a Float32Array, where its first row begins, and how far apart
   its rows are. `rows` and `columns` of out are multiples of 4: sixteen sums at a time stay in
   registers, so that each number that is read is used four times. Sums are of double precision. */
(globalThis.Playground ??= {}).product = function product(out, a, b, rows, columns, depth) {
  const from = a.data, by = b.data, to = out.data;
  for (let i = 0; i < rows; i += 4) {
    const a0 = a.at + i * a.stride, a1 = a0 + a.stride, a2 = a1 + a.stride, a3 = a2 + a.stride;
    for (let j = 0; j < columns; j += 4) {
      const b0 = b.at + j * b.stride, b1 = b0 + b.stride, b2 = b1 + b.stride, b3 = b2 + b.stride;
      let s00 = 0, s01 = 0, s02 = 0, s03 = 0, s10 = 0, s11 = 0, s12 = 0, s13 = 0;
      let s20 = 0, s21 = 0, s22 = 0, s23 = 0, s30 = 0, s31 = 0, s32 = 0, s33 = 0;
      for (let k = 0; k < depth; k++) {
        const x0 = from[a0 + k], x1 = from[a1 + k], x2 = from[a2 + k], x3 = from[a3 + k];
        const y0 = by[b0 + k], y1 = by[b1 + k], y2 = by[b2 + k], y3 = by[b3 + k];
        s00 += x0 * y0; s01 += x0 * y1; s02 += x0 * y2; s03 += x0 * y3;
        s10 += x1 * y0; s11 += x1 * y1; s12 += x1 * y2; s13 += x1 * y3;
        s20 += x2 * y0; s21 += x2 * y1; s22 += x2 * y2; s23 += x2 * y3;
        s30 += x3 * y0; s31 += x3 * y1; s32 += x3 * y2; s33 += x3 * y3;
      }
      let o = out.at + i * out.stride + j;
      to[o] = s00; to[o + 1] = s01; to[o + 2] = s02; to[o + 3] = s03;
      o += out.stride;
      to[o] = s10; to[o + 1] = s11; to[o + 2] = s12; to[o + 3] = s13;
      o += out.stride;
      to[o] = s20; to[o + 1] = s21; to[o + 2] = s22; to[o + 3] = s23;
      o += out.stride;
      to[o] = s30; to[o + 1] = s31; to[o + 2] = s32; to[o + 3] = s33;
    }
  }
};
