// RUN: attnc --run-pass=tile,cse,online-softmax,fold-scale,cse,rescale,pipeline,cse %s | FileCheck %s
// A mask without dense bounds.  The producer, one thread, takes tiles and blocks from the
// search: K with the record beside it, Q behind the first, V of the block before, the last V
// at the end of the tile; a tile without blocks takes the record and a slot of V.  The search,
// a whole warp, draws tiles, names them to the other roles (number and coordinates, -1 at the
// end), and is one block ahead of its records (entry, last; classes, which a lane has found
// for all three consumers; -1 stands for a tile without blocks): all lanes wait for a slot,
// one writes.  The consumers' loop ends at the last block or in front of one that is not own,
// and holds nothing of the search; those are skipped up to the next own one, whose scores
// start another run with a rescaled accumulator.  A record is read behind the products' issue.

// CHECK-LABEL: func.func @a(
// CHECK-SAME: attn.arg = "workspace:0", attn.workspace_bytes = ["4"], attn.workspace_zeroed
// CHECK-SAME: attn.order = "dynamic"
// CHECK-DAG: %[[ENTRIES:.*]] = "attn.shared"() {byte_offset = {{.*}}, name = "block_entries"}
// CHECK-DAG: %[[CLASSES:.*]] = "attn.shared"() {byte_offset = {{.*}}, name = "block_classes"}
// CHECK-DAG: %[[FOUND:.*]] = "attn.shared"() {byte_offset = {{.*}}, name = "found_blocks"}
// CHECK-DAG: %[[FOUND_FULL:.*]] = "attn.mbarriers"() {arrivals = 1 : i32, {{.*}}name = "found_full"}
// CHECK-DAG: %[[FOUND_EMPTY:.*]] = "attn.mbarriers"() {arrivals = 1 : i32, {{.*}}name = "found_empty"}
// CHECK-DAG: %[[DRAWN_FULL:.*]] = "attn.mbarriers"() {arrivals = 1 : i32, {{.*}}name = "drawn_full"}
// CHECK-DAG: %[[DRAWN_EMPTY:.*]] = "attn.mbarriers"() {arrivals = 13 : i32, {{.*}}name = "drawn_empty"}
// CHECK-DAG: %[[DRAWN:.*]] = "attn.shared"() {byte_offset = {{.*}}, name = "drawn_tiles"}
// CHECK: "attn.set_max_registers"() {action = "decrease"
// CHECK: "attn.mbarrier_wait"(%[[DRAWN_FULL]],
// CHECK: memref.load %[[DRAWN]]
// CHECK: "attn.mbarrier_arrive"(%[[DRAWN_EMPTY]], {{.*}}) {single}
// CHECK: scf.while
// CHECK: "attn.mbarrier_wait"(%[[FOUND_FULL]],
// CHECK: memref.load %[[FOUND]]
// CHECK: memref.load %[[FOUND]]
// CHECK: "attn.mbarrier_arrive"(%[[FOUND_EMPTY]], {{.*}}) {single}
// CHECK: scf.if
// CHECK: memref.store {{.*}}, %[[ENTRIES]]
// CHECK: memref.store {{.*}}, %[[CLASSES]]
// CHECK: "attn.tma_load"(%arg1
// CHECK-COUNT-3: "attn.tma_load"(%arg0
// CHECK: scf.while
// CHECK: scf.condition
// CHECK: memref.load %[[FOUND]]
// CHECK: "attn.tma_load"(%arg1
// CHECK: "attn.tma_load"(%arg2
// CHECK: scf.yield
// CHECK: "attn.tma_load"(%arg2
// CHECK: } else {
// CHECK: memref.store {{.*}}, %[[ENTRIES]]
// CHECK: "attn.mbarrier_arrive"({{.*}}) {single}
// CHECK: "attn.mbarrier_arrive"({{.*}}) {single}
// CHECK: memref.load %[[DRAWN]]
// CHECK-NOT: attn.tma_load
// CHECK: "attn.mbarrier_wait"(%[[DRAWN_EMPTY]],
// CHECK-NEXT: scf.if
// CHECK: memref.store {{.*}}, %[[DRAWN]]
// CHECK: scf.while
// CHECK: scf.while
// CHECK: "attn.ballot"
// CHECK-NOT: "attn.ballot"
// CHECK: "attn.lane_value"
// CHECK: "attn.mbarrier_wait"(%[[FOUND_EMPTY]],
// CHECK-NEXT: scf.if
// CHECK: memref.store {{.*}}, %[[FOUND]]
// CHECK: memref.store {{.*}}, %[[FOUND]]
// CHECK: "attn.mbarrier_arrive"(%[[FOUND_FULL]], {{.*}}) {single}
// CHECK: scf.condition
// CHECK: math.cttz
// CHECK: scf.yield
// CHECK: memref.store %c-1_i32{{.*}}, %[[FOUND]]
// CHECK: "attn.atomic_inc"
// CHECK: "attn.uniform"
// CHECK: memref.store %c-1_i32{{.*}}, %[[DRAWN]]
// CHECK-NOT: attn.tma_load
// CHECK: "attn.set_max_registers"() {action = "increase"
// CHECK-NOT: attn.ballot
// CHECK-NOT: math.cttz
// CHECK: memref.load %[[DRAWN]]
// CHECK: memref.load %[[ENTRIES]]
// CHECK: "attn.wgmma"({{.*}}) {transpose_b}
// CHECK: %[[LOOP:.*]]:16 = scf.while
// CHECK: scf.while {{.*}}%[[AGAIN:.*]] = %false
// CHECK: scf.if %[[AGAIN]] -> (vector<64x64xf32>)
// CHECK: scf.while
// CHECK: scf.condition
// CHECK: "attn.wgmma"({{.*}}) {transpose_b}
// CHECK: "attn.wgmma"({{.*}}) :
// CHECK: memref.load %[[ENTRIES]]
// CHECK: memref.load %[[CLASSES]]
// CHECK: "attn.wgmma"({{.*}}) :
// CHECK: memref.load %[[ENTRIES]]
// CHECK: scf.while
// CHECK: scf.condition
// CHECK: memref.load %[[ENTRIES]]
// CHECK: scf.condition
// CHECK: "attn.wgmma"({{.*}}) {transpose_b}
// CHECK: scf.yield {{.*}}%true
// CHECK: memref.load %[[DRAWN]]
// CHECK: memref.load %[[ENTRIES]]
// CHECK: "attn.wgmma"({{.*}}) {transpose_b}
// CHECK: "attn.store"

!qk = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!vo = memref<?x?x?x64xbf16, strided<[?, ?, ?, 1]>>
!lse = memref<?x?x?xf32, strided<[?, ?, ?]>>
module attributes {attn.target = "sm_90a"} {
  func.func @a(%Q: !qk {attn.arg = "q"}, %K: !qk {attn.arg = "k"},
      %V: !vo {attn.arg = "v"}, %O: !vo {attn.arg = "o"}, %LSE: !lse {attn.arg = "lse"},
      %batch: i32 {attn.arg = "size:batch"}, %heads: i32 {attn.arg = "size:heads"}, %kv_heads: i32 {attn.arg = "size:kv_heads"},
      %q_len: i32 {attn.arg = "size:q_len"}, %kv_len: i32 {attn.arg = "size:kv_len"}) {
    %scale = arith.constant 0.125 : f32
    "attn.attention"(%Q, %K, %V, %O, %LSE, %scale) {classify = @a.classify, group = 0 : i32, kv_bounds = @a.kv_bounds, mask = @a.mask}
        : (!qk, !qk, !vo, !vo, !lse, f32) -> ()
    return
  }
  func.func private @a.mask(%b: i32, %h: i32, %h_kv: i32, %q: i32, %kv: i32,
      %batch: i32, %heads: i32, %kv_heads: i32, %q_len: i32, %kv_len: i32) -> i1 {
    %r = arith.cmpi sle, %kv, %q : i32
    return %r : i1
  }
  func.func private @a.classify(%b: i32, %h: i32, %h_kv: i32, %q0: i32, %q1: i32, %k0: i32, %k1: i32,
      %batch: i32, %heads: i32, %kv_heads: i32, %q_len: i32, %kv_len: i32) -> (i32, i32) {
    %c0 = arith.constant 0 : i32
    %c1 = arith.constant 1 : i32
    %c2 = arith.constant 2 : i32
    %all = arith.cmpi sle, %k1, %q0 : i32
    %some = arith.cmpi sle, %k0, %q1 : i32
    %x = arith.select %some, %c1, %c0 : i32
    %r = arith.select %all, %c2, %x : i32
    return %r, %c0 : i32, i32
  }
  func.func private @a.kv_bounds(%b: i32, %h: i32, %h_kv: i32, %q0: i32, %q1: i32,
      %batch: i32, %heads: i32, %kv_heads: i32, %q_len: i32, %kv_len: i32) -> (i32, i32) {
    %c0 = arith.constant 0 : i32
    return %c0, %q1 : i32, i32
  }
}
