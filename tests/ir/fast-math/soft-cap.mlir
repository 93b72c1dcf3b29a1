// RUN: attnc --run-pass=fast-math %s | FileCheck %s
// cap·tanh(s·a): the vote is on s, and both factors are in the coefficients, which are
// computed in front of the loop, like the limit.

// CHECK-LABEL: func.func @capped(
// CHECK-SAME: %[[A:[a-z0-9]+]]: f32, %[[CAP:[a-z0-9]+]]: f32
// CHECK: %[[LIMIT:.*]] = arith.select %{{.*}}, %{{.*}}, %{{.*}} : f32
// CHECK: vector.broadcast %[[LIMIT]] : f32 to vector<64x4xf32>
// CHECK-COUNT-5: vector.broadcast %{{.*}} : f32 to vector<64x32xf32>
// CHECK: scf.for {{.*}} iter_args(%[[S:.*]] =
// CHECK-NOT: vector.broadcast
// CHECK: %[[SIZE:.*]] = math.absf %[[S]]
// CHECK: "attn.partial_max"(%[[SIZE]])
// CHECK: scf.if
// CHECK: %[[X:.*]] = arith.mulf %[[S]]
// CHECK: %[[T:.*]] = math.tanh %[[X]]
// CHECK: arith.mulf %[[T]]
// CHECK: } else {
// CHECK: %[[U:.*]] = arith.mulf %[[S]], %[[S]]
// CHECK-COUNT-4: math.fma %[[U]]
// CHECK: %[[R:.*]] = arith.mulf %[[S]]
// CHECK-NEXT: scf.yield %[[R]]

func.func @capped(%n: i32, %a: f32, %cap: f32, %t: vector<64x32xf32>) -> vector<64x32xf32> {
  %c0 = arith.constant 0 : i32
  %c1 = arith.constant 1 : i32
  %as = vector.broadcast %a : f32 to vector<64x32xf32>
  %caps = vector.broadcast %cap : f32 to vector<64x32xf32>
  %sum = scf.for %i = %c0 to %n step %c1 iter_args(%s = %t) -> (vector<64x32xf32>) : i32 {
    %x = arith.mulf %s, %as fastmath<contract> : vector<64x32xf32>
    %y = math.tanh %x fastmath<contract> : vector<64x32xf32>
    %z = arith.mulf %caps, %y fastmath<contract> : vector<64x32xf32>
    scf.yield %z : vector<64x32xf32>
  }
  return %sum : vector<64x32xf32>
}
