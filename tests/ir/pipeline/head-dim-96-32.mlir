// RUN: attnc --run-pass=tile,online-softmax,fold-scale,pipeline %s | FileCheck %s
// Head dimensions 96 and 32: the depth of Q*K is padded to 96 columns, V is not; the
// swizzle keeps the 8 rows of an ldmatrix phase in different bank groups.

// CHECK-LABEL: func.func @a(
// CHECK-DAG: name = "q", pitch = 12 : i32, swizzle_bits = 2 : i32, swizzle_shift = 1 : i32} : () -> memref<{{[0-9]+}}x96xbf16
// CHECK-DAG: name = "k", pitch = 12 : i32, swizzle_bits = 2 : i32, swizzle_shift = 1 : i32} : () -> memref<2x{{[0-9]+}}x96xbf16
// CHECK-DAG: name = "v", pitch = 4 : i32, swizzle_bits = 2 : i32, swizzle_shift = 1 : i32} : () -> memref<2x{{[0-9]+}}x32xbf16

!qk = memref<?x?x?x96xbf16, strided<[?, ?, ?, 1]>>
!vo = memref<?x?x?x32xbf16, strided<[?, ?, ?, 1]>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?]>>
module attributes {attn.target = "sm_80"} {
  func.func @a(%Q: !qk {attn.arg = "q"}, %K: !qk {attn.arg = "k"},
      %V: !vo {attn.arg = "v"}, %O: !vo {attn.arg = "o"}, %LSE: !lse {attn.arg = "lse"},
      %batch: i32 {attn.arg = "size:batch"}, %heads: i32 {attn.arg = "size:heads"}, %kv_heads: i32 {attn.arg = "size:kv_heads"},
      %q_len: i32 {attn.arg = "size:q_len"}, %kv_len: i32 {attn.arg = "size:kv_len"})
      attributes {attn.stages = 2 : i32} {
    %scale = arith.constant 0.125 : f32
    "attn.attention"(%Q, %K, %V, %O, %LSE, %scale) {group = 0 : i32}
        : (!qk, !qk, !vo, !vo, !lse, f32) -> ()
    return
  }
}
