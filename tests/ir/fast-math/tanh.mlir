// RUN: attnc --run-pass=fast-math %s | FileCheck %s
// tanh of a tile in a loop: a vote on max |x|, then tanh itself or an odd polynomial.
// Rows (moved in front of the loop with the constants), code that must be evaluated as
// written and code outside of loops stay as they are.

// CHECK-LABEL: func.func @hot(
// CHECK-DAG: math.tanh %{{.*}} : vector<64x1xf32>
// CHECK-DAG: %[[LIMIT:.*]] = arith.constant dense<7.500000e-01> : vector<64x4xf32>
// CHECK: scf.for
// CHECK: math.tanh %{{.*}} : vector<64x32xf32>
// CHECK: %[[SIZE:.*]] = math.absf %[[X:.*]] fastmath<contract> : vector<64x32xf32>
// CHECK: %[[TOP:.*]] = "attn.partial_max"(%[[SIZE]]) : (vector<64x32xf32>) -> vector<64x4xf32>
// CHECK: %[[PAST:.*]] = arith.cmpf ogt, %[[TOP]], %[[LIMIT]]
// CHECK: %[[ANY:.*]] = "attn.vote_any"(%[[PAST]])
// CHECK: %[[R:.*]] = scf.if %[[ANY]] -> (vector<64x32xf32>) {
// CHECK: %[[GENERAL:.*]] = math.tanh %[[X]] fastmath<contract>
// CHECK: scf.yield %[[GENERAL]]
// CHECK: } else {
// CHECK: %[[U:.*]] = arith.mulf %[[X]], %[[X]]
// CHECK-COUNT-4: math.fma %[[U]]
// CHECK: %[[SMALL:.*]] = arith.mulf %[[X]]
// CHECK: scf.yield %[[SMALL]]
// CHECK: scf.yield %[[R]]
// CHECK: math.tanh %{{.*}} fastmath<contract> : vector<64x32xf32>
// CHECK-NOT: scf.if

func.func @hot(%n: i32, %row: vector<64x1xf32>, %t: vector<64x32xf32>) -> vector<64x32xf32> {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %sum = scf.for %i = %c0 to %n step %c1 iter_args(%x = %t) -> (vector<64x32xf32>) : i32 {
    %r = math.tanh %row fastmath<contract> : vector<64x1xf32>
    %wide = vector.broadcast %r : vector<64x1xf32> to vector<64x32xf32>
    %strict = math.tanh %x : vector<64x32xf32>
    %y = arith.addf %strict, %wide : vector<64x32xf32>
    %z = math.tanh %y fastmath<contract> : vector<64x32xf32>
    scf.yield %z : vector<64x32xf32>
  }
  %last = math.tanh %sum fastmath<contract> : vector<64x32xf32>
  return %last : vector<64x32xf32>
}
