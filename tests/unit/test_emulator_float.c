/* Floating instructions of the emulator: rounding, subnormal numbers, NaN, the
 * approximate functions at points whose value is known, conversions.
 */
#include <math.h>

#include "tests/unit/emulator_harness.h"

#define ONE 0x3f800000u
#define TWO 0x40000000u
#define NAN32 0x7fffffffu /* canonical */
#define INF 0x7f800000u
#define NEG_INF 0xff800000u
#define TINY 0x00000001u /* smallest subnormal */
#define NEG_ZERO 0x80000000u

Test(emulator_float, f32) {
    static const struct instruction_case cases[] = {
        {"add.f32 %r0, %r1, %r2;", ONE, TWO, 0, 0x40400000},
        {"add.f32 %r0, %r1, %r2;", INF, NEG_INF, 0, NAN32},
        {"add.f32 %r0, %r1, %r2;", 0xffc12345, ONE, 0, NAN32},
        {"add.f32 %r0, %r1, %r2;", TINY, TINY, 0, 2},
        {"add.ftz.f32 %r0, %r1, %r2;", TINY, TINY, 0, 0},
        {"add.ftz.f32 %r0, %r1, %r2;", 0x80000001, 0x80000001, 0, NEG_ZERO},
        {"add.f32 %r0, %r1, %r2;", ONE, 0x33800000, 0,
         ONE}, /* 1 + 2^-24: tie to even */
        {"add.rp.f32 %r0, %r1, %r2;", ONE, 0x33800000, 0, 0x3f800001},
        {"add.rz.f32 %r0, %r1, %r2;", ONE, 0xb3000000, 0,
         0x3f7fffff}, /* 1 - 2^-25 */
        {"add.rm.f32 %r0, %r1, %r2;", ONE, 0xbf800000, 0, NEG_ZERO},
        {"add.sat.f32 %r0, %r1, %r2;", ONE, TWO, 0, ONE},
        {"add.sat.f32 %r0, %r1, %r2;", 0xbf800000, 0xbf800000, 0, 0},
        {"add.sat.f32 %r0, %r1, %r2;", 0x7fc00000, ONE, 0, 0},
        {"sub.f32 %r0, %r1, %r2;", ONE, ONE, 0, 0},
        {"mul.f32 %r0, %r1, %r2;", 0x7f7fffff, TWO, 0, INF},
        {"mul.rz.f32 %r0, %r1, %r2;", 0x7f7fffff, TWO, 0, 0x7f7fffff},
        {"mul.f32 %r0, %r1, %r2;", 0x00800000, 0x3f000000, 0, 0x00400000},
        {"mul.ftz.f32 %r0, %r1, %r2;", 0x00800000, 0x3f000000, 0, 0},
        {"mul.f32 %r0, %r1, %r2;", 0, INF, 0, NAN32},
        /* (1+2^-12)^2 - (1+2^-11) = 2^-24: lost by a separate multiplication */
        {"fma.rn.f32 %r0, %r1, %r2, %r3;", 0x3f800800, 0x3f800800, 0xbf801000,
         0x33800000},
        {"fma.rn.ftz.f32 %r0, %r1, %r2, %r3;", 0x3f800800, 0x3f800800,
         0xbf801000, 0x33800000},
        {"fma.rz.f32 %r0, %r1, %r2, %r3;", ONE, ONE, 0x33800001, ONE},
        {"fma.rp.f32 %r0, %r1, %r2, %r3;", ONE, ONE, TINY, 0x3f800001},
        {"div.rn.f32 %r0, %r1, %r2;", ONE, 0x40400000, 0, 0x3eaaaaab},
        {"div.rz.f32 %r0, %r1, %r2;", ONE, 0x40400000, 0, 0x3eaaaaaa},
        {"div.rn.f32 %r0, %r1, %r2;", ONE, 0, 0, INF},
        {"div.rn.f32 %r0, %r1, %r2;", 0, 0, 0, NAN32},
        {"div.approx.f32 %r0, %r1, %r2;", 0x40c00000, 0x40400000, 0, TWO},
        {"div.approx.f32 %r0, %r1, %r2;", ONE, 0x7f000000, 0,
         0}, /* divisor 2^127 */
        {"div.full.f32 %r0, %r1, %r2;", 0x40c00000, 0x40400000, 0, TWO},
        {"sqrt.rn.f32 %r0, %r1;", TWO, 0, 0, 0x3fb504f3},
        {"sqrt.rp.f32 %r0, %r1;", TWO, 0, 0, 0x3fb504f4},
        {"sqrt.rn.f32 %r0, %r1;", 0xbf800000, 0, 0, NAN32},
        {"sqrt.approx.f32 %r0, %r1;", 0x40800000, 0, 0, TWO},
        {"rcp.rn.f32 %r0, %r1;", 0x40400000, 0, 0, 0x3eaaaaab},
        {"rcp.approx.ftz.f32 %r0, %r1;", TWO, 0, 0, 0x3f000000},
        {"rcp.approx.ftz.f32 %r0, %r1;", TINY, 0, 0, INF},
        {"rcp.approx.f32 %r0, %r1;", NEG_ZERO, 0, 0, NEG_INF},
        {"rsqrt.approx.f32 %r0, %r1;", 0x40800000, 0, 0, 0x3f000000},
        {"rsqrt.approx.f32 %r0, %r1;", 0, 0, 0, INF},
        {"ex2.approx.f32 %r0, %r1;", 0x40400000, 0, 0, 0x41000000},
        {"ex2.approx.ftz.f32 %r0, %r1;", NEG_INF, 0, 0, 0},
        {"ex2.approx.ftz.f32 %r0, %r1;", INF, 0, 0, INF},
        {"ex2.approx.ftz.f32 %r0, %r1;", 0x7fc00000, 0, 0, NAN32},
        {"ex2.approx.f32 %r0, %r1;", 0xc3020000, 0, 0, 0x00080000}, /* 2^-130 */
        {"ex2.approx.ftz.f32 %r0, %r1;", 0xc3020000, 0, 0, 0},
        {"ex2.approx.f32 %r0, %r1;", 0x3f000000, 0, 0, 0x3fb504f3},
        {"ex2.approx.f32 %r0, %r1;", 0x43000000, 0, 0, INF},
        {"lg2.approx.f32 %r0, %r1;", 0x41000000, 0, 0, 0x40400000},
        {"lg2.approx.f32 %r0, %r1;", 0, 0, 0, NEG_INF},
        {"lg2.approx.f32 %r0, %r1;", 0xbf800000, 0, 0, NAN32},
        {"lg2.approx.f32 %r0, %r1;", TINY, 0, 0, 0xc3150000}, /* -149 */
        {"lg2.approx.ftz.f32 %r0, %r1;", TINY, 0, 0, NEG_INF},
        {"sin.approx.f32 %r0, %r1;", 0, 0, 0, 0},
        {"cos.approx.f32 %r0, %r1;", 0, 0, 0, ONE},
        {"sin.approx.f32 %r0, %r1;", INF, 0, 0, NAN32},
        {"tanh.approx.f32 %r0, %r1;", INF, 0, 0, ONE},
        {"tanh.approx.f32 %r0, %r1;", NEG_ZERO, 0, 0, NEG_ZERO},
    };
    run_cases(cases, COUNT(cases), "sm_80");
}

Test(emulator_float, signs_and_order) {
    static const struct instruction_case cases[] = {
        {"abs.f32 %r0, %r1;", 0xc0000000, 0, 0, TWO},
        {"neg.f32 %r0, %r1;", TWO, 0, 0, 0xc0000000},
        {"neg.ftz.f32 %r0, %r1;", TINY, 0, 0, NEG_ZERO},
        {"copysign.f32 %r0, %r1, %r2;", NEG_ZERO, ONE, 0, 0xbf800000},
        {"min.f32 %r0, %r1, %r2;", ONE, 0x7fc00000, 0, ONE},
        {"min.f32 %r0, %r1, %r2;", 0x7fc00000, 0xffc00000, 0, NAN32},
        {"min.f32 %r0, %r1, %r2;", 0, NEG_ZERO, 0, NEG_ZERO},
        {"max.f32 %r0, %r1, %r2;", NEG_ZERO, 0, 0, 0},
        {"max.f32 %r0, %r1, %r2;", NEG_INF, ONE, 0, ONE},
        {"max.NaN.f32 %r0, %r1, %r2;", ONE, 0x7fc00000, 0, NAN32},
        {"max.ftz.f32 %r0, %r1, %r2;", TINY, 0, 0, 0},
        {"min.xorsign.abs.f32 %r0, %r1, %r2;", 0xc0000000, ONE, 0, 0xbf800000},
        {"setp.lt.f32 %p0, %r1, %r2;", ONE, 0x7fc00000, 0, 0},
        {"setp.ltu.f32 %p0, %r1, %r2;", ONE, 0x7fc00000, 0, 1},
        {"setp.neu.f32 %p0, %r1, %r2;", ONE, 0x7fc00000, 0, 1},
        {"setp.ne.f32 %p0, %r1, %r2;", ONE, 0x7fc00000, 0, 0},
        {"setp.equ.f32 %p0, %r1, %r2;", ONE, TWO, 0, 0},
        {"setp.gtu.f32 %p0, %r1, %r2;", ONE, TWO, 0, 0},
        {"setp.geu.f32 %p0, %r1, %r2;", TWO, TWO, 0, 1},
        {"setp.leu.f32 %p0, %r1, %r2;", 0xffc00000, TWO, 0, 1},
        {"setp.num.f32 %p0, %r1, %r2;", ONE, TWO, 0, 1},
        {"setp.nan.f32 %p0, %r1, %r2;", ONE, 0xffc00000, 0, 1},
        {"setp.eq.f32 %p0, %r1, %r2;", TINY, 0, 0, 0},
        {"setp.eq.ftz.f32 %p0, %r1, %r2;", TINY, 0, 0, 1},
        {"setp.eq.f32 %p0, %r1, %r2;", 0, NEG_ZERO, 0, 1},
        {"set.gt.f32.f32 %r0, %r1, %r2;", TWO, ONE, 0, ONE},
        {"testp.finite.f32 %p0, %r1;", INF, 0, 0, 0},
        {"testp.infinite.f32 %p0, %r1;", NEG_INF, 0, 0, 1},
        {"testp.notanumber.f32 %p0, %r1;", 0x7fc00000, 0, 0, 1},
        {"testp.subnormal.f32 %p0, %r1;", TINY, 0, 0, 1},
        {"testp.normal.f32 %p0, %r1;", ONE, 0, 0, 1},
    };
    run_cases(cases, COUNT(cases), "sm_90");
}

Test(emulator_float, f64) {
    static const struct instruction_case cases[] = {
        {"add.f64 %d0, %d1, %d2;", 0x3ff0000000000000, 0x4000000000000000, 0,
         0x4008000000000000},
        {"mul.rp.f64 %d0, %d1, %d2;", 0x3ff0000000000001, 0x3ff0000000000001, 0,
         0x3ff0000000000003},
        {"fma.rn.f64 %d0, %d1, %d2, %d3;", 0x3ff0000000000001,
         0x3ff0000000000001, 0xbff0000000000002, 0x3970000000000000},
        {"div.rn.f64 %d0, %d1, %d2;", 0x3ff0000000000000, 0x4008000000000000, 0,
         0x3fd5555555555555},
        {"sqrt.rn.f64 %d0, %d1;", 0x4000000000000000, 0, 0, 0x3ff6a09e667f3bcd},
        {"rcp.rn.f64 %d0, %d1;", 0x4008000000000000, 0, 0, 0x3fd5555555555555},
        {"abs.f64 %d0, %d1;", 0xc000000000000000, 0, 0, 0x4000000000000000},
        {"neg.f64 %d0, %d1;", 0x4000000000000000, 0, 0, 0xc000000000000000},
        {"min.f64 %d0, %d1, %d2;", 0x4000000000000000, 0x7ff8000000000000, 0,
         0x4000000000000000},
        {"max.f64 %d0, %d1, %d2;", 0x8000000000000000, 0, 0, 0},
        {"setp.lt.f64 %p0, %d1, %d2;", 0x3ff0000000000000, 0x4000000000000000,
         0, 1},
        {"copysign.f64 %d0, %d1, %d2;", 0x8000000000000000, 0x4000000000000000,
         0, 0xc000000000000000},
    };
    run_cases(cases, COUNT(cases), "sm_80");
}

Test(emulator_float, half) {
    static const struct instruction_case cases[] = {
        {"add.f16 %h0, %h1, %h2;", 0x3c00, 0x4000, 0, 0x4200},
        {"add.f16x2 %r0, %r1, %r2;", 0x3c003c00, 0x40003c00, 0, 0x42004000},
        {"add.f16 %h0, %h1, %h2;", 0x3c00, 0x1000, 0,
         0x3c00}, /* 1 + 2^-11: tie to even */
        {"add.f16 %h0, %h1, %h2;", 0x3c01, 0x1000, 0, 0x3c02},
        {"add.f16 %h0, %h1, %h2;", 0x7bff, 0x7bff, 0, 0x7c00},
        {"add.f16 %h0, %h1, %h2;", 0x0001, 0x0001, 0, 0x0002},
        {"add.ftz.f16 %h0, %h1, %h2;", 0x0001, 0x0001, 0, 0x0000},
        {"add.sat.f16 %h0, %h1, %h2;", 0x3c00, 0x3c00, 0, 0x3c00},
        {"sub.f16 %h0, %h1, %h2;", 0x3c00, 0x4000, 0, 0xbc00},
        {"mul.f16 %h0, %h1, %h2;", 0x4200, 0x4200, 0, 0x4880},
        {"fma.rn.f16 %h0, %h1, %h2, %h3;", 0x3c01, 0x3c01, 0xbc02,
         0x0010}, /* 2^-20 */
        {"fma.rn.f16x2 %r0, %r1, %r2, %r3;", 0x40003c00, 0x40004000, 0x3c003c00,
         0x45004200},
        {"fma.rn.bf16 %h0, %h1, %h2, %h3;", 0x3f81, 0x3f81, 0xbf82,
         0x3880}, /* 2^-14 */
        {"fma.rn.bf16x2 %r0, %r1, %r2, %r3;", 0x40003f80, 0x40004000,
         0x3f803f80, 0x40a04040},
        /* 1 * 1 + 2^-8 + …: the tie of bf16 is broken by a sticky bit far
         * below */
        {"fma.rn.bf16 %h0, %h1, %h2, %h3;", 0x3f81, 0x3f80, 0x3b80, 0x3f82},
        {"fma.rn.relu.f16 %h0, %h1, %h2, %h3;", 0x3c00, 0xc000, 0x3c00, 0x0000},
        {"add.bf16 %h0, %h1, %h2;", 0x3f80, 0x4000, 0, 0x4040},
        {"neg.f16x2 %r0, %r1;", 0x3c00bc00, 0, 0, 0xbc003c00},
        {"abs.bf16x2 %r0, %r1;", 0xbf803f80, 0, 0, 0x3f803f80},
        {"min.f16 %h0, %h1, %h2;", 0x3c00, 0x7e00, 0, 0x3c00},
        {"max.NaN.bf16x2 %r0, %r1, %r2;", 0x7fc03f80, 0x3f804000, 0,
         0x7fff4000},
        {"max.f16x2 %r0, %r1, %r2;", 0x80003c00, 0x00004000, 0, 0x00004000},
        {"ex2.approx.f16 %h0, %h1;", 0x4000, 0, 0, 0x4400},
        {"ex2.approx.ftz.bf16x2 %r0, %r1;", 0x40004080, 0, 0, 0x40804180},
        {"tanh.approx.f16x2 %r0, %r1;", 0x7c000000, 0, 0, 0x3c000000},
        {"setp.lt.f16 %p0, %h1, %h2;", 0x3c00, 0x4000, 0, 1},
        {"setp.gt.f16x2 %p0|%p1, %r1, %r2;", 0x3c004000, 0x40003c00, 0, 1},
        {"setp.gt.f16x2 %p1|%p0, %r1, %r2;", 0x3c004000, 0x40003c00, 0, 0},
    };
    run_cases(cases, COUNT(cases), "sm_90");
}

Test(emulator_float, conversions_to_float) {
    static const struct instruction_case cases[] = {
        {"cvt.rn.f32.s32 %r0, %r1;", 0xffffffff, 0, 0, 0xbf800000},
        {"cvt.rn.f32.u32 %r0, %r1;", 0xffffffff, 0, 0, 0x4f800000},
        {"cvt.rz.f32.u32 %r0, %r1;", 0xffffffff, 0, 0, 0x4f7fffff},
        {"cvt.rn.f32.s32 %r0, %r1;", 0x01000001, 0, 0, 0x4b800000},
        {"cvt.rp.f32.s32 %r0, %r1;", 0x01000001, 0, 0, 0x4b800001},
        {"cvt.rn.f32.s64 %r0, %d1;", 0x8000000000000000, 0, 0, 0xdf000000},
        {"cvt.rn.f32.u64 %r0, %d1;", 0x8000008000000001, 0, 0, 0x5f000001},
        {"cvt.rn.f64.s64 %d0, %d1;", 0xffffffffffffffff, 0, 0,
         0xbff0000000000000},
        {"cvt.rz.f64.u64 %d0, %d1;", 0xffffffffffffffff, 0, 0,
         0x43efffffffffffff},
        {"cvt.f64.f32 %d0, %r1;", 0x3fc00000, 0, 0, 0x3ff8000000000000},
        {"cvt.rn.f32.f64 %r0, %d1;", 0x3ff0000010000000, 0, 0, 0x3f800000},
        {"cvt.rp.f32.f64 %r0, %d1;", 0x3ff0000010000000, 0, 0, 0x3f800001},
        {"cvt.rn.f32.f64 %r0, %d1;", 0x7fe0000000000000, 0, 0, INF},
        {"cvt.f32.f16 %r0, %h1;", 0x0001, 0, 0, 0x33800000},
        {"cvt.f32.f16 %r0, %h1;", 0xfc00, 0, 0, NEG_INF},
        {"cvt.f32.f16 %r0, %h1;", 0x7e01, 0, 0, NAN32},
        {"cvt.f32.bf16 %r0, %h1;", 0xbf80, 0, 0, 0xbf800000},
        {"cvt.rn.f16.f32 %h0, %r1;", 0x477fefff, 0, 0, 0x7bff},
        {"cvt.rn.f16.f32 %h0, %r1;", 0x477ff000, 0, 0, 0x7c00},
        {"cvt.rz.f16.f32 %h0, %r1;", 0x477ff000, 0, 0, 0x7bff},
        {"cvt.rn.f16.f32 %h0, %r1;", 0x33000000, 0, 0,
         0x0000}, /* 2^-25: tie to 0 */
        {"cvt.rn.f16.f32 %h0, %r1;", 0x33000001, 0, 0, 0x0001},
        {"cvt.rn.f16.f32 %h0, %r1;", 0x387fe000, 0, 0,
         0x0400}, /* rounds up to 2^-14 */
        {"cvt.rn.f16.f32 %h0, %r1;", 0xffc00000, 0, 0, 0x7fff},
        {"cvt.rn.relu.f16.f32 %h0, %r1;", 0xbf800000, 0, 0, 0x0000},
        {"cvt.rn.bf16.f32 %h0, %r1;", 0x3f808000, 0, 0, 0x3f80},
        {"cvt.rn.bf16.f32 %h0, %r1;", 0x3f818000, 0, 0, 0x3f82},
        {"cvt.rn.bf16.f32 %h0, %r1;", 0x7f7fffff, 0, 0, 0x7f80},
        {"cvt.rz.bf16.f32 %h0, %r1;", 0x7f7fffff, 0, 0, 0x7f7f},
        {"cvt.rn.bf16.f32 %h0, %r1;", 0x7f800001, 0, 0, 0x7fff},
        {"cvt.rn.bf16x2.f32 %r0, %r1, %r2;", ONE, TWO, 0, 0x3f804000},
        {"cvt.rn.f16x2.f32 %r0, %r1, %r2;", ONE, 0xc0000000, 0, 0x3c00c000},
        {"cvt.rn.relu.bf16x2.f32 %r0, %r1, %r2;", 0xbf800000, TWO, 0,
         0x00004000},
        {"cvt.rz.f16x2.f32 %r0, %r1, %r2;", 0x477ff000, ONE, 0, 0x7bff3c00},
        {"cvt.rna.tf32.f32 %r0, %r1;", 0x3f801000, 0, 0, 0x3f802000},
        {"cvt.rn.f16.s32 %h0, %r1;", 0xfffffffe, 0, 0, 0xc000},
    };
    run_cases(cases, COUNT(cases), "sm_90");
}

Test(emulator_float, conversions_to_integer) {
    static const struct instruction_case cases[] = {
        {"cvt.rni.s32.f32 %r0, %r1;", 0x40200000, 0, 0, 2},          /* 2.5 */
        {"cvt.rni.s32.f32 %r0, %r1;", 0x40600000, 0, 0, 4},          /* 3.5 */
        {"cvt.rzi.s32.f32 %r0, %r1;", 0xc0200000, 0, 0, 0xfffffffe}, /* -2.5 */
        {"cvt.rmi.s32.f32 %r0, %r1;", 0xc0200000, 0, 0, 0xfffffffd},
        {"cvt.rpi.s32.f32 %r0, %r1;", 0xc0200000, 0, 0, 0xfffffffe},
        {"cvt.rzi.s32.f32 %r0, %r1;", 0x4f000000, 0, 0, 0x7fffffff},
        {"cvt.rzi.s32.f32 %r0, %r1;", NEG_INF, 0, 0, 0x80000000},
        {"cvt.rzi.u32.f32 %r0, %r1;", 0xbf800000, 0, 0, 0},
        {"cvt.rzi.u32.f32 %r0, %r1;", 0x7fc00000, 0, 0, 0},
        {"cvt.rzi.u64.f32 %d0, %r1;", INF, 0, 0, 0xffffffffffffffff},
        {"cvt.rzi.s64.f64 %d0, %d1;", 0xc004000000000000, 0, 0,
         0xfffffffffffffffe},
        {"cvt.rni.f32.f32 %r0, %r1;", 0x40200000, 0, 0, TWO},
        {"cvt.rmi.f32.f32 %r0, %r1;", 0xbf000000, 0, 0, 0xbf800000},
        {"cvt.rpi.f32.f32 %r0, %r1;", 0xbf000000, 0, 0, NEG_ZERO},
        {"cvt.rzi.f32.f32 %r0, %r1;", 0x7f7fffff, 0, 0, 0x7f7fffff},
        {"cvt.sat.f32.f32 %r0, %r1;", TWO, 0, 0, ONE},
        {"cvt.ftz.f32.f32 %r0, %r1;", TINY, 0, 0, 0},
        {"cvt.s32.s8 %r0, %r1;", 0x1ff, 0, 0, 0xffffffff},
        {"cvt.u32.u8 %r0, %r1;", 0x1ff, 0, 0, 0xff},
        {"cvt.s64.s16 %d0, %h1;", 0x8000, 0, 0, 0xffffffffffff8000},
        {"cvt.u16.u32 %h0, %r1;", 0x12345678, 0, 0, 0x5678},
        {"cvt.sat.u8.s32 %r0, %r1;", 0xffffffff, 0, 0, 0},
        {"cvt.sat.s8.s32 %r0, %r1;", 200, 0, 0, 127},
        {"cvt.s64.s32 %d0, %r1;", 0x80000000, 0, 0, 0xffffffff80000000},
        {"cvt.u64.u32 %d0, %r1;", 0x80000000, 0, 0, 0x80000000},
        {"cvt.u32.u64 %r0, %d1;", 0x500000007, 0, 0, 7},
        {"cvt.rzi.s32.f16 %r0, %h1;", 0xc100, 0, 0, 0xfffffffe},
    };
    run_cases(cases, COUNT(cases), "sm_90");
}

/* ---- approximate functions within the errors of the ISA manual --------- */

/* Applies `instruction` to `count` floats. */
static void run_function(const char *instruction, const float *in, float *out,
                         size_t count) {
    struct strbuf text;
    strbuf_init(&text, NULL);
    strbuf_printf(
        &text,
        PTX_HEAD(
            "sm_90") ".visible .entry k(.param .u64 in, .param .u64 out)\n{\n"
                     ".reg .b32 %%r<4>; .reg .b64 %%d<6>; .reg .f32 %%f<2>;\n"
                     "ld.param.u64 %%d0, [in]; ld.param.u64 %%d1, [out];\n"
                     "mov.u32 %%r0, %%ctaid.x; mov.u32 %%r1, %%tid.x; "
                     "mad.lo.u32 %%r0, %%r0, 32, %%r1;\n"
                     "mul.wide.u32 %%d2, %%r0, 4; add.u64 %%d3, %%d0, %%d2; "
                     "add.u64 %%d4, %%d1, %%d2;\n"
                     "ld.global.f32 %%f0, [%%d3];\n%s %%f1, "
                     "%%f0;\nst.global.f32 [%%d4], %%f1;\nret;\n}\n",
        instruction);
    struct device d = device_create(strbuf_text(&text));
    uint64_t params[2] = {device_put(&d, in, count * 4, "in"),
                          device_put(&d, NULL, count * 4, "out")};
    device_run(&d, "k", (uint32_t)(count / 32), 32, 0, params, 2, NULL);
    expect_clean(&d);
    device_get(&d, params[1], out, count * 4);
    device_destroy(&d);
    strbuf_destroy(&text);
}

static double exp2_reference(double x) {
    return exp2(x);
}
static double log2_reference(double x) {
    return log2(x);
}
static double sin_reference(double x) {
    return sin(x);
}
static double cos_reference(double x) {
    return cos(x);
}
static double tanh_reference(double x) {
    return tanh(x);
}
static double rcp_reference(double x) {
    return 1.0 / x;
}
static double rsqrt_reference(double x) {
    return 1.0 / sqrt(x);
}

Test(emulator_float, approximate_functions) {
    enum { N = 1 << 14 };
    static const struct {
        const char *instruction;
        double (*reference)(double);
        float low, high;
        double relative, absolute; /* bound: the larger of both */
    } rows[] = {
        {"ex2.approx.ftz.f32", exp2_reference, -125.9f, 127.9f, 0x1p-22, 0},
        {"lg2.approx.ftz.f32", log2_reference, 0x1p-20f, 0x1p20f, 0x1p-22,
         0x1p-22},
        {"sin.approx.f32", sin_reference, -3.14f, 3.14f, 0, 0x1p-20},
        {"cos.approx.f32", cos_reference, -3.14f, 3.14f, 0, 0x1p-20},
        {"tanh.approx.f32", tanh_reference, -10.0f, 10.0f, 0x1p-11, 0},
        {"rcp.approx.ftz.f32", rcp_reference, 0.001f, 1000.0f, 0x1p-23, 0},
        {"rsqrt.approx.ftz.f32", rsqrt_reference, 0.001f, 1000.0f, 0x1p-22, 0},
    };
    static float in[N], out[N];
    for (size_t r = 0; r < COUNT(rows); r++) {
        for (int i = 0; i < N; i++)
            in[i] = rows[r].low +
                    (rows[r].high - rows[r].low) * ((float)i + 0.37f) / N;
        run_function(rows[r].instruction, in, out, N);
        for (int i = 0; i < N; i++) {
            double exact = rows[r].reference((double)in[i]);
            double bound =
                fmax(rows[r].relative * fabs(exact), rows[r].absolute);
            cr_assert(fabs((double)out[i] - exact) <= bound,
                      "%s(%a) = %a, expected %a", rows[r].instruction,
                      (double)in[i], (double)out[i], exact);
        }
    }
}
