// RUN: attnc --run-pass=tile %s | FileCheck %s
// No mask: a block needs mask code only where it crosses kv_len.  Grid, plan and
// coordinates: query tiles fastest, the last one first.

// CHECK-LABEL: func.func @a(
// CHECK-SAME: attn.grid = ["q_len", "128", "ceildiv", "heads", "mul", "batch", "mul"]
// CHECK-SAME: attn.kernel = "main"
// CHECK-SAME: attn.tile = array<i32: 128, 64>, attn.warps = 4 : i32
// CHECK: %[[CTA:.*]] = arith.index_cast %block_id_x
// CHECK: %[[TILES:.*]] = arith.divui
// CHECK: %[[BH:.*]] = arith.divui %[[CTA]], %[[TILES]]
// CHECK: %[[T:.*]] = arith.remui %[[CTA]], %[[TILES]]
// CHECK: %[[LAST:.*]] = arith.subi %[[TILES]]
// CHECK: %[[QT:.*]] = arith.subi %[[LAST]], %[[T]]
// CHECK: "attn.load"({{.*}}) {name = "q"}
// CHECK: scf.for
// CHECK: %[[K0:.*]] = arith.muli
// CHECK: %[[END:.*]] = arith.addi %[[K0]]
// CHECK: %[[PARTIAL:.*]] = arith.cmpi sgt, %[[END]], %arg9
// CHECK: "attn.load"({{.*}}%[[K0]], %arg9) {name = "k"}
// CHECK: "attn.load"({{.*}}%[[K0]], %arg9) {name = "v"}
// CHECK: "attn.dot"({{.*}}) {transpose_b}
// CHECK: scf.if %[[PARTIAL]]
// CHECK: arith.select
// CHECK: "attn.softmax_step"
// CHECK: "attn.softmax_finish"
// CHECK: "attn.store"
// CHECK: "attn.store"({{.*}}) {optional}
// CHECK-NOT: attn.attention

!qk = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!vo = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?]>>
module attributes {attn.target = "sm_80"} {
  func.func @a(%Q: !qk {attn.arg = "q"}, %K: !qk {attn.arg = "k"},
      %V: !vo {attn.arg = "v"}, %O: !vo {attn.arg = "o"}, %LSE: !lse {attn.arg = "lse"},
      %batch: i32 {attn.arg = "size:batch"}, %heads: i32 {attn.arg = "size:heads"}, %kv_heads: i32 {attn.arg = "size:kv_heads"},
      %q_len: i32 {attn.arg = "size:q_len"}, %kv_len: i32 {attn.arg = "size:kv_len"}) {
    %scale = arith.constant 0.125 : f32
    "attn.attention"(%Q, %K, %V, %O, %LSE, %scale) {group = 0 : i32}
        : (!qk, !qk, !vo, !vo, !lse, f32) -> ()
    return
  }
}
