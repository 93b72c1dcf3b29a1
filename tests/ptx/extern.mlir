// RUN: attnc --emit=ptx %s -o %t.ptx && FileCheck %s --input-file=%t.ptx
// RUN: %if ptxas %{ ptxas -c -arch=sm_80 %t.ptx -o %t.80 && ptxas -c -arch=sm_90 %t.ptx -o %t.90 %}
// Calls of device functions: one declaration each, whatever shapes they are
// called with; one call for a scalar, two for the rows of a lane, two for its
// columns, four for its elements of a 16 x 8 tile.
// CHECK-DAG:  {{^}}.extern .func (.param .b32 here_result) here();
// CHECK-DAG:  {{^}}.extern .func (.param .b32 decay_result) decay(.param .b32 decay_0);
// CHECK-DAG:  {{^}}.extern .func (.param .b32 near_result) near(.param .b32 near_0, .param .b32 near_1, .param .b32 near_2);
// CHECK-NOT:  .extern .func
// CHECK:      .visible .entry shapes(

// A function without parameters, and a constant argument.
// CHECK:          {{^ +}}{
// CHECK-NEXT:     .param .b32 here_result;
// CHECK-NEXT:     call.uni (here_result), here, ();
// CHECK-NEXT:     ld.param.b32 %{{[a-z0-9]+}}, [here_result];
// CHECK-NEXT:     }
// CHECK-NEXT:     // @ {{.*}}
// CHECK-NEXT:     {
// CHECK-NEXT:     .param .b32 decay_0;
// CHECK-NEXT:     .param .b32 decay_result;
// CHECK-NEXT:     st.param.b32 [decay_0], 7;
// CHECK-NEXT:     call.uni (decay_result), decay, (decay_0);
// CHECK-NEXT:     ld.param.f32 %{{[a-z0-9]+}}, [decay_result];
// CHECK-NEXT:     }
// Rows go before the run, which does its columns before its elements.
// CHECK:          st.param.b32 [decay_0], [[ROW:%row_lane[0-9]*]];
// CHECK:          call.uni (decay_result), decay, (decay_0);
// CHECK:          call.uni (decay_result), decay, (decay_0);
// CHECK-NOT:      call.uni
// CHECK:          st.param.b32 [decay_0], %column_lane;
// CHECK:          call.uni (decay_result), decay, (decay_0);
// CHECK:          call.uni (decay_result), decay, (decay_0);
// Booleans travel as words; eight bits of the result count.
// CHECK-NOT:      call.uni
// CHECK:          selp.b32 [[WORD:%r[0-9]+]], 1, 0, %{{[a-z0-9]+}};
// CHECK-NEXT:     {
// CHECK-NEXT:     .param .b32 near_0;
// CHECK-NEXT:     .param .b32 near_1;
// CHECK-NEXT:     .param .b32 near_2;
// CHECK-NEXT:     .param .b32 near_result;
// CHECK-NEXT:     st.param.b32 [near_0], [[ROW]];
// CHECK-NEXT:     st.param.f32 [near_1], %{{[a-z0-9]+}};
// CHECK-NEXT:     st.param.b32 [near_2], [[WORD]];
// CHECK-NEXT:     call.uni (near_result), near, (near_0, near_1, near_2);
// CHECK-NEXT:     ld.param.b32 [[RESULT:%r[0-9]+]], [near_result];
// CHECK-NEXT:     }
// CHECK-NEXT:     and.b32 [[BYTE:%r[0-9]+]], [[RESULT]], 255;
// CHECK-NEXT:     setp.ne.s32 %{{[a-z0-9]+}}, [[BYTE]], 0;
// CHECK-COUNT-3:  call.uni (near_result)
// CHECK-NOT:      call.uni
// CHECK:          ret;

module attributes {attn.target = "sm_80"} {
  func.func private @here() -> i32 attributes {attn.extern = "here"}
  func.func private @decay(i32) -> f32 attributes {attn.extern = "decay"}
  func.func private @decay.16x8(vector<16x8xi32>) -> vector<16x8xf32> attributes {attn.extern = "decay"}
  func.func private @near.16x8(vector<16x8xi32>, vector<16x8xf32>, vector<16x8xi1>) -> vector<16x8xi1> attributes {attn.extern = "near"}
  func.func @shapes(
      %LSE: memref<?x?x?xf32, strided<[?, ?, ?]>> {attn.arg = "lse"},
      %q_len: i32 {attn.arg = "size:q_len"})
      attributes {attn.kernel = "main", attn.tile = array<i32: 16, 8>, attn.warps = 1 : i32, attn.grid = ["q_len", "16", "ceildiv"]} {
    %c0 = arith.constant 0 : i32
    %c7 = arith.constant 7 : i32
    %here = func.call @here() : () -> i32
    %start = func.call @decay(%c7) : (i32) -> f32
    %row_step = vector.step : vector<16xindex>
    %row_i32 = arith.index_cast %row_step : vector<16xindex> to vector<16xi32>
    %row = vector.shape_cast %row_i32 : vector<16xi32> to vector<16x1xi32>
    %rows = vector.broadcast %row : vector<16x1xi32> to vector<16x8xi32>
    %col_step = vector.step : vector<8xindex>
    %col_i32 = arith.index_cast %col_step : vector<8xindex> to vector<8xi32>
    %col = vector.shape_cast %col_i32 : vector<8xi32> to vector<1x8xi32>
    %cols = vector.broadcast %col : vector<1x8xi32> to vector<16x8xi32>
    %by_row = func.call @decay.16x8(%rows) : (vector<16x8xi32>) -> vector<16x8xf32>
    %by_col = func.call @decay.16x8(%cols) : (vector<16x8xi32>) -> vector<16x8xf32>
    %before = arith.cmpi slt, %cols, %rows : vector<16x8xi32>
    %keep = func.call @near.16x8(%rows, %by_col, %before) : (vector<16x8xi32>, vector<16x8xf32>, vector<16x8xi1>) -> vector<16x8xi1>
    %other = vector.broadcast %start : f32 to vector<16x8xf32>
    %kept = arith.select %keep, %by_row, %other : vector<16x8xi1>, vector<16x8xf32>
    %zero = arith.constant dense<0.0> : vector<16xf32>
    %sum = vector.multi_reduction <add>, %kept, %zero [1] : vector<16x8xf32> to vector<16xf32>
    %sums = vector.shape_cast %sum : vector<16xf32> to vector<16x1xf32>
    "attn.store"(%sums, %LSE, %c0, %c0, %here, %q_len) : (vector<16x1xf32>, memref<?x?x?xf32, strided<[?, ?, ?]>>, i32, i32, i32, i32) -> ()
    return
  }
}
