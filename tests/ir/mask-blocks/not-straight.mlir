// RUN: attnc --run-pass=mask-blocks %s | mlir-opt --irdl-file=%irdl | FileCheck %s
// A mask with control flow, which only a hand-written module can have, is not taken
// apart: everything is partial.  It takes no parameter, the other functions do.

// CHECK: "attn.attention"{{.*}}classify = @a.classify, group
// CHECK-LABEL: func.func private @a.classify(
// CHECK-SAME: %arg12: f32
// CHECK: %[[ONE:.*]] = arith.constant 1 : i32
// CHECK-NEXT: %[[ZERO:.*]] = arith.constant 0 : i32
// CHECK-NEXT: return %[[ONE]], %[[ZERO]] : i32, i32

!qk = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?]>>
module attributes {attn.target = "sm_80"} {
  func.func @a(%Q: !qk {attn.arg = "q"}, %K: !qk {attn.arg = "k"}, %V: !qk {attn.arg = "v"},
      %O: !qk {attn.arg = "o"}, %LSE: !lse {attn.arg = "lse"},
      %batch: i32 {attn.arg = "size:batch"}, %heads: i32 {attn.arg = "size:heads"},
      %kv_heads: i32 {attn.arg = "size:kv_heads"}, %q_len: i32 {attn.arg = "size:q_len"},
      %kv_len: i32 {attn.arg = "size:kv_len"}, %p: f32 {attn.arg = "param:p"})
      attributes {attn.tile = array<i32: 64, 32>} {
    "attn.attention"(%Q, %K, %V, %O, %LSE, %p) {group = 0 : i32, mask = @a.mask}
        : (!qk, !qk, !qk, !qk, !lse, f32) -> ()
    return
  }
  func.func private @a.mask(%b: i32, %h: i32, %h_kv: i32, %q: i32, %kv: i32, %batch: i32,
      %heads: i32, %kv_heads: i32, %q_len: i32, %kv_len: i32) -> i1 {
    %past = arith.cmpi sle, %kv, %q : i32
    %keep = scf.if %past -> i1 {
      %even = arith.trunci %kv : i32 to i1
      scf.yield %even : i1
    } else {
      scf.yield %past : i1
    }
    return %keep : i1
  }
}
