// RUN: attnc --run-pass=mask-blocks %s | mlir-opt --irdl-file=%irdl | FileCheck %s
// RUN: attnc --run-pass=mask-blocks,mask-blocks %s | mlir-opt --irdl-file=%irdl | FileCheck %s
// A module in text form, the tile in an attribute; a second run changes nothing.
// A sum with a parameter may wrap: then the interval is all of i32.

// CHECK: "attn.attention"{{.*}}classify = @a.classify
// CHECK-COUNT-1: func.func private @a.classify(
// CHECK: %[[LO:.*]] = arith.addi %arg5, %arg12 : i32
// CHECK: %[[HI:.*]] = arith.addi %arg6, %arg12 : i32
// CHECK: arith.cmpi slt
// CHECK: %[[BAD:.*]] = arith.ori
// CHECK: arith.select %[[BAD]], %c-2147483648_i32{{.*}}, %[[LO]] : i32
// CHECK: arith.select %[[BAD]], %c2147483647_i32{{.*}}, %[[HI]] : i32
// CHECK: func.func private @a.kv_bounds(
// CHECK-NOT: func.func

!qk = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?]>>
module attributes {attn.target = "sm_80"} {
  func.func @a(%Q: !qk {attn.arg = "q"}, %K: !qk {attn.arg = "k"}, %V: !qk {attn.arg = "v"},
      %O: !qk {attn.arg = "o"}, %LSE: !lse {attn.arg = "lse"},
      %batch: i32 {attn.arg = "size:batch"}, %heads: i32 {attn.arg = "size:heads"},
      %kv_heads: i32 {attn.arg = "size:kv_heads"}, %q_len: i32 {attn.arg = "size:q_len"},
      %kv_len: i32 {attn.arg = "size:kv_len"}, %p: i32 {attn.arg = "param:p"})
      attributes {attn.tile = array<i32: 64, 32>} {
    %scale = arith.constant 0.125 : f32
    "attn.attention"(%Q, %K, %V, %O, %LSE, %scale) {group = 0 : i32, mask = @a.mask}
        : (!qk, !qk, !qk, !qk, !lse, f32) -> ()
    return
  }
  func.func private @a.mask(%b: i32, %h: i32, %h_kv: i32, %q: i32, %kv: i32, %batch: i32,
      %heads: i32, %kv_heads: i32, %q_len: i32, %kv_len: i32, %p: i32) -> i1 {
    %sum = arith.addi %kv, %p : i32
    %keep = arith.cmpi sle, %sum, %q : i32
    return %keep : i1
  }
}
