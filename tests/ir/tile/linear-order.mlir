// RUN: attnc --run-pass=tile %s | FileCheck %s
// attn.order = "linear": tiles run as they are numbered; the pinned tile is kept.

// CHECK-LABEL: func.func @a(
// CHECK-SAME: attn.tile = array<i32: 64, 32>
// CHECK: %[[T:.*]] = arith.remui
// CHECK: %[[TILE:.*]] = "attn.warp_reduce"(%[[T]]) {kind = "minsi"}
// CHECK: arith.muli %[[TILE]], %c64

!qk = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!vo = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?]>>
module attributes {attn.target = "sm_80"} {
  func.func @a(%Q: !qk {attn.arg = "q"}, %K: !qk {attn.arg = "k"},
      %V: !vo {attn.arg = "v"}, %O: !vo {attn.arg = "o"}, %LSE: !lse {attn.arg = "lse"},
      %batch: i32 {attn.arg = "size:batch"}, %heads: i32 {attn.arg = "size:heads"}, %kv_heads: i32 {attn.arg = "size:kv_heads"},
      %q_len: i32 {attn.arg = "size:q_len"}, %kv_len: i32 {attn.arg = "size:kv_len"})
      attributes {attn.order = "linear", attn.tile = array<i32: 64, 32>} {
    %scale = arith.constant 0.125 : f32
    "attn.attention"(%Q, %K, %V, %O, %LSE, %scale) {group = 0 : i32}
        : (!qk, !qk, !vo, !vo, !lse, f32) -> ()
    return
  }
}
