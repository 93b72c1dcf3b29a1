// RUN: attnc --run-pass=tile,cse,online-softmax,fold-scale,cse,rescale,pipeline,cse %s | FileCheck %s
// No mask: roles, one counted key loop, tiles in static order.  The producer runs one K
// ahead of V; a consumer issues Q K(j) and P V(j-1) before it waits for either, and
// the first Q K of the next tile before it stores O.  The first block needs no vote.

// CHECK-LABEL: func.func @a(
// CHECK-SAME: attn.consumers = 3 : i32
// CHECK-SAME: attn.grid = ["sm_count", "q_len", "192", "ceildiv", "heads", "mul", "batch", "mul", "min"]
// CHECK-SAME: attn.q_stages = 2 : i32, attn.rescale_threshold = {{.*}}, attn.row_warps = 4 : i32, attn.shared_bytes = {{[0-9]+}} : i32
// CHECK-SAME: attn.warps = 16 : i32
// CHECK-DAG: "attn.shared"() {byte_offset = 0 : i32, name = "q", swizzle_bytes = 128 : i32} : () -> memref<6x64x64xbf16
// CHECK-DAG: %[[K:.*]] = "attn.shared"() {byte_offset = 49152 : i32, name = "k", swizzle_bytes = 128 : i32} : () -> memref<4x128x64xbf16
// CHECK-DAG: %[[V:.*]] = "attn.shared"() {byte_offset = 114688 : i32, name = "v", swizzle_bytes = 128 : i32} : () -> memref<4x128x64xbf16
// CHECK-DAG: %[[KFULL:.*]] = "attn.mbarriers"() {arrivals = 1 : i32, byte_offset = {{.*}}, name = "k_full"}
// CHECK-DAG: %[[KEMPTY:.*]] = "attn.mbarriers"() {arrivals = 12 : i32, byte_offset = {{.*}}, name = "k_empty"}
// CHECK-DAG: %[[VFULL:.*]] = "attn.mbarriers"() {arrivals = 1 : i32, byte_offset = {{.*}}, name = "v_full"}
// CHECK: "attn.fence_mbarrier_init"
// CHECK: gpu.barrier
// CHECK: "attn.set_max_registers"() {action = "decrease", count = 32 : i32}
// CHECK: scf.for
// CHECK: "attn.tma_load"(%arg1
// CHECK-COUNT-3: "attn.tma_load"(%arg0
// CHECK: scf.for
// CHECK: "attn.mbarrier_wait"(%[[KEMPTY]]
// CHECK: "attn.mbarrier_expect_tx"(%[[KFULL]], {{.*}}) {bytes = 16384 : i32}
// CHECK: "attn.tma_load"(%arg1
// CHECK: "attn.tma_load"(%arg2
// CHECK: "attn.set_max_registers"() {action = "increase", count = 160 : i32}
// CHECK: "attn.wgmma"({{.*}}) {transpose_b}
// CHECK: "attn.wgmma_wait"({{.*}}) {pending = 0 : i32}
// CHECK: scf.for
// CHECK-NOT: {{[{]transpose_b[}]|attn.vote_any|attn.partial_max}}
// CHECK: scf.for
// CHECK: "attn.mbarrier_wait"(%[[KFULL]]
// CHECK: "attn.wgmma_fence"
// CHECK: %[[S:.*]] = "attn.wgmma"({{.*}}) {transpose_b}
// CHECK: "attn.wgmma_commit"
// CHECK: "attn.mbarrier_wait"(%[[VFULL]]
// CHECK: %[[O:.*]] = "attn.wgmma"({{.*}}) : (vector<64x128xbf16>
// CHECK: "attn.wgmma_commit"
// CHECK: "attn.wgmma_wait"(%[[S]]) {pending = 1 : i32}
// CHECK: "attn.mbarrier_arrive"(%[[KEMPTY]]
// CHECK-NOT: scf.if
// CHECK: "attn.vote_any"
// CHECK: "attn.wgmma_wait"(%[[O]]) {pending = 0 : i32}
// CHECK: math.exp2 {{.*}} : vector<64x128xf32>
// CHECK: "attn.wgmma_wait"({{.*}}) {pending = 0 : i32} : (vector<64x64xf32>)
// CHECK: %[[NEXT:.*]] = "attn.wgmma"({{.*}}) {transpose_b}
// CHECK: "attn.tma_store"
// CHECK: "attn.store"
// CHECK: "attn.wgmma_wait"(%[[NEXT]]) {pending = 0 : i32}
// CHECK: "attn.mbarrier_arrive"(%[[KEMPTY]]
// CHECK: } else {
// CHECK: "attn.tma_store"
// CHECK: "attn.store"
// CHECK-NOT: attn.load
// CHECK-NOT: attn.consumer"

!qk = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!vo = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?]>>
module attributes {attn.target = "sm_90a"} {
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
