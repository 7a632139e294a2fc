"use strict";

/* The product of kernel.wat in plain JavaScript, for browsers whose WebAssembly has no SIMD: slow,
   but quick enough for the teaching model, whose weights are not packed. */
(globalThis.Playground ??= {}).plainKernel = memory => ({
  product(out, outStride, a, aStride, b, bStride, rows, columns, depth) {
    const numbers = new Float32Array(memory.buffer);
    for (let i = 0; i < rows; i++) {
      for (let j = 0; j < columns; j++) {
        const x = (a + i * aStride) / 4, y = (b + j * bStride) / 4;
        let sum = 0;
        for (let k = 0; k < depth; k++) sum += numbers[x + k] * numbers[y + k];
        numbers[(out + i * outStride) / 4 + j] = sum;
      }
    }
  },
});
