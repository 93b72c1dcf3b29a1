/* Integer instructions of the emulator, against values written down by hand. */
#include "tests/unit/emulator_harness.h"

#define M 0xffffffffu

Test(emulator_int, arithmetic) {
    static const struct instruction_case cases[] = {
        {"add.u32 %r0, %r1, %r2;", M, 2, 0, 1},
        {"add.s64 %d0, %d1, %d2;", ~0ull, 2, 0, 1},
        {"add.u16 %h0, %h1, %h2;", 0xffff, 2, 0, 1},
        {"add.sat.s32 %r0, %r1, %r2;", 0x7fffffff, 1, 0, 0x7fffffff},
        {"add.sat.s32 %r0, %r1, %r2;", 0x80000000u, M, 0, 0x80000000u},
        {"sub.s32 %r0, %r1, %r2;", 1, 2, 0, M},
        {"sub.sat.s32 %r0, %r1, %r2;", 0x80000000u, 1, 0, 0x80000000u},
        {"mul.lo.s32 %r0, %r1, %r2;", M, 3, 0, 0xfffffffd},
        {"mul.hi.u32 %r0, %r1, %r2;", M, M, 0, 0xfffffffe},
        {"mul.hi.s32 %r0, %r1, %r2;", M, 3, 0, M},
        {"mul.hi.s64 %d0, %d1, %d2;", ~0ull, 3, 0, ~0ull},
        {"mul.hi.u64 %d0, %d1, %d2;", ~0ull, 3, 0, 2},
        {"mul.wide.s32 %d0, %r1, %r2;", M, 5, 0, 0xfffffffffffffffb},
        {"mul.wide.u32 %d0, %r1, %r2;", M, 5, 0, 0x4fffffffb},
        {"mul.wide.s16 %r0, %h1, %h2;", 0xffff, 5, 0, 0xfffffffb},
        {"mul.wide.u16 %r0, %h1, %h2;", 0xffff, 0xffff, 0, 0xfffe0001},
        {"mul24.lo.s32 %r0, %r1, %r2;", 0xffffff, 3, 0, 0xfffffffd},
        {"mad.lo.s32 %r0, %r1, %r2, %r3;", 3, 4, 5, 17},
        {"mad.hi.u32 %r0, %r1, %r2, %r3;", 0x80000000u, 6, 5, 8},
        {"mad.wide.u32 %d0, %r1, %r2, %d3;", M, 2, 3, 0x200000001},
        {"mad.wide.s32 %d0, %r1, %r2, %d3;", M, 2, 3, 1},
        {"div.s32 %r0, %r1, %r2;", 0xfffffff9, 2, 0, 0xfffffffd},
        {"div.u32 %r0, %r1, %r2;", 0xfffffff9, 2, 0, 0x7ffffffc},
        {"rem.s32 %r0, %r1, %r2;", 0xfffffff9, 2, 0, M},
        {"rem.u32 %r0, %r1, %r2;", 0xfffffff9, 10, 0, 9},
        {"div.s64 %d0, %d1, %d2;", (uint64_t)-7, 2, 0, (uint64_t)-3},
        {"rem.s64 %d0, %d1, %d2;", (uint64_t)-7, 2, 0, (uint64_t)-1},
        {"div.s32 %r0, %r1, %r2;", 0x80000000u, M, 0, 0x80000000u},
        {"abs.s32 %r0, %r1;", 0xfffffff9, 0, 0, 7},
        {"neg.s32 %r0, %r1;", 7, 0, 0, 0xfffffff9},
        {"min.s32 %r0, %r1, %r2;", M, 3, 0, M},
        {"min.u32 %r0, %r1, %r2;", M, 3, 0, 3},
        {"max.s32 %r0, %r1, %r2;", M, 3, 0, 3},
        {"max.s16 %h0, %h1, %h2;", 0xffff, 3, 0, 3},
        {"max.u64 %d0, %d1, %d2;", ~0ull, 3, 0, ~0ull},
        {"sad.u32 %r0, %r1, %r2, %r3;", 3, 8, 100, 105},
        {"sad.s32 %r0, %r1, %r2, %r3;", M, 8, 100, 109},
        {"dp4a.s32.s32 %r0, %r1, %r2, %r3;", 0xff020304, 0x01010101, 10, 18},
        {"dp4a.u32.u32 %r0, %r1, %r2, %r3;", 0xff020304, 0x01010101, 10, 274},
    };
    run_cases(cases, COUNT(cases), "sm_80");
}

Test(emulator_int, bits) {
    static const struct instruction_case cases[] = {
        {"and.b32 %r0, %r1, %r2;", 0xff00ff, 0xf0f0f0, 0, 0xf000f0},
        {"or.b64 %d0, %d1, %d2;", 0xf00000000, 0x0f, 0, 0xf0000000f},
        {"xor.b16 %h0, %h1, %h2;", 0xff, 0xf0f, 0, 0xff0},
        {"not.b32 %r0, %r1;", 0xff, 0, 0, 0xffffff00},
        {"not.b16 %h0, %h1;", 0xff, 0, 0, 0xff00},
        {"cnot.b32 %r0, %r1;", 0, 0, 0, 1},
        {"cnot.b32 %r0, %r1;", 7, 0, 0, 0},
        {"shl.b32 %r0, %r1, %r2;", 1, 31, 0, 0x80000000u},
        {"shl.b32 %r0, %r1, %r2;", 1, 32, 0, 0},
        {"shl.b64 %d0, %d1, %r2;", 1, 63, 0, 1ull << 63},
        {"shr.u32 %r0, %r1, %r2;", 0x80000000u, 31, 0, 1},
        {"shr.u32 %r0, %r1, %r2;", 0x80000000u, 40, 0, 0},
        {"shr.s32 %r0, %r1, %r2;", 0x80000000u, 40, 0, M},
        {"shr.s64 %d0, %d1, %r2;", 1ull << 63, 62, 0, ~1ull},
        {"shr.s16 %h0, %h1, %r2;", 0x8000, 3, 0, 0xf000},
        {"shf.l.wrap.b32 %r0, %r1, %r2, %r3;", 0x80000000u, 1, 33, 3},
        {"shf.l.clamp.b32 %r0, %r1, %r2, %r3;", 0x12345678, 1, 33, 0x12345678},
        {"shf.r.wrap.b32 %r0, %r1, %r2, %r3;", 2, 1, 1, 0x80000001u},
        {"shf.r.clamp.b32 %r0, %r1, %r2, %r3;", 2, 7, 40, 7},
        {"popc.b32 %r0, %r1;", 0xf0f, 0, 0, 8},
        {"popc.b64 %r0, %d1;", ~0ull, 0, 0, 64},
        {"clz.b32 %r0, %r1;", 0, 0, 0, 32},
        {"clz.b32 %r0, %r1;", 1, 0, 0, 31},
        {"clz.b64 %r0, %d1;", 1, 0, 0, 63},
        {"brev.b32 %r0, %r1;", 1, 0, 0, 0x80000000u},
        {"brev.b64 %d0, %d1;", 2, 0, 0, 1ull << 62},
        {"bfind.u32 %r0, %r1;", 0x10, 0, 0, 4},
        {"bfind.u32 %r0, %r1;", 0, 0, 0, M},
        {"bfind.s32 %r0, %r1;", 0xfffffff0, 0, 0, 3},
        {"bfind.shiftamt.u32 %r0, %r1;", 0x10, 0, 0, 27},
        {"bfe.u32 %r0, %r1, %r2, %r3;", 0xabcd, 4, 8, 0xbc},
        {"bfe.s32 %r0, %r1, %r2, %r3;", 0xabcd, 4, 8, 0xffffffbc},
        {"bfe.s32 %r0, %r1, %r2, %r3;", 0x80000000u, 28, 8, 0xfffffff8},
        {"bfe.u32 %r0, %r1, %r2, %r3;", 0xabcd, 4, 0, 0},
        {"bfe.u64 %d0, %d1, %r2, %r3;", 0xab00000000, 32, 8, 0xab},
        {"bfi.b32 %r0, %r1, %r2, %r3, 8;", 0xab, 0x11111111, 8, 0x1111ab11},
        {"bfi.b64 %d0, %d1, %d2, 32, 32;", 0xab, 5, 0, 0xab00000005},
        {"bmsk.clamp.b32 %r0, %r1, %r2;", 4, 8, 0, 0xff0},
        {"bmsk.clamp.b32 %r0, %r1, %r2;", 28, 8, 0, 0xf0000000},
        {"prmt.b32 %r0, %r1, %r2, %r3;", 0x33221100, 0x77665544, 0x7410, 0x77441100},
        {"prmt.b32 %r0, %r1, %r2, %r3;", 0x80, 0x77665544, 0x1118, 0x000000ff},
        {"prmt.b32.f4e %r0, %r1, %r2, %r3;", 0x33221100, 0x77665544, 1, 0x44332211},
        {"prmt.b32.b4e %r0, %r1, %r2, %r3;", 0x33221100, 0x77665544, 1, 0x66770011},
        {"prmt.b32.rc8 %r0, %r1, %r2, %r3;", 0x33221100, 0, 2, 0x22222222},
        {"prmt.b32.rc16 %r0, %r1, %r2, %r3;", 0x33221100, 0, 1, 0x33223322},
        {"lop3.b32 %r0, %r1, %r2, %r3, 0x96;", 0xff, 0x0f, 0x33, 0xc3},
        {"lop3.b32 %r0, %r1, %r2, %r3, 0xe8;", 0xff, 0x0f, 0x33, 0x3f},
        {"{ .reg .pred %q; setp.eq.u32 %q, %r1, 5; and.pred %p0, %q, %p3; }", 5, 0, 1, 1},
        {"{ .reg .pred %q; setp.eq.u32 %q, %r1, 5; not.pred %p0, %q; }", 5, 0, 1, 0},
        {"mov.b32 %r0, {%h1, %h2};", 0x1234, 0xabcd, 0, 0xabcd1234},
        {"mov.b64 %d0, {%r1, %r2};", 7, 9, 0, 0x900000007},
        {"mov.b32 {%h0, %h3}, %r1;", 0xabcd1234, 0, 0, 0x1234},
        {"mov.b64 {_, %r0}, %d1;", 0x900000007, 0, 0, 9},
    };
    run_cases(cases, COUNT(cases), "sm_80");
}

Test(emulator_int, carry) {
    static const struct instruction_case cases[] = {
        {"add.cc.u32 %dead, %r1, %r2; addc.u32 %r0, %r3, 0;", M, 1, 5, 6},
        {"add.cc.u32 %dead, %r1, %r2; addc.u32 %r0, %r3, 0;", 3, 1, 5, 5},
        {"sub.cc.u32 %dead, %r1, %r2; subc.u32 %r0, %r3, 0;", 0, 1, 5, 4},
        {"mad.lo.cc.u32 %dead, %r1, %r2, 1; madc.hi.u32 %r0, %r1, %r2, %r3;", M, M, 5, 3},
        {"add.cc.u64 %d0, %d1, %d2; addc.u64 %d0, %d3, 0;", ~0ull, 1, 5, 6},
    };
    run_cases(cases, COUNT(cases), "sm_80");
}

Test(emulator_int, comparison) {
    static const struct instruction_case cases[] = {
        {"setp.lt.s32 %p0, %r1, %r2;", M, 1, 0, 1},
        {"setp.lo.u32 %p0, %r1, %r2;", M, 1, 0, 0},
        {"setp.hs.u32 %p0, %r1, %r2;", M, 1, 0, 1},
        {"setp.ge.s16 %p0, %h1, %h2;", 0xffff, 1, 0, 0},
        {"setp.gt.u64 %p0, %d1, %d2;", 1ull << 40, 1, 0, 1},
        {"setp.eq.and.s32 %p0, %r1, %r2, %p3;", 4, 4, 0, 0},
        {"setp.ne.or.s32 %p0, %r1, %r2, !%p3;", 4, 4, 0, 1},
        {"setp.eq.xor.s32 %p0, %r1, %r2, %p3;", 4, 4, 1, 0},
        {"setp.eq.s32 %p1|%p0, %r1, %r2;", 4, 4, 0, 0},
        {"setp.eq.and.s32 %p1|%p0, %r1, %r2, %p3;", 4, 5, 1, 1},
        {"set.lt.u32.s32 %r0, %r1, %r2;", M, 1, 0, M},
        {"set.lt.f32.s32 %r0, %r1, %r2;", M, 1, 0, 0x3f800000},
        {"selp.b32 %r0, %r1, %r2, %p3;", 4, 5, 1, 4},
        {"selp.b64 %d0, %d1, %d2, !%p3;", 4, 5, 1, 5},
        {"slct.u32.s32 %r0, %r1, %r2, %r3;", 4, 5, M, 5},
        {"slct.u32.s32 %r0, %r1, %r2, %r3;", 4, 5, 0, 4},
        {"slct.f32.f32 %r0, %r1, %r2, %r3;", 4, 5, 0x80000000u, 4},
        {"slct.f32.f32 %r0, %r1, %r2, %r3;", 4, 5, 0x7fc00000u, 5},
    };
    run_cases(cases, COUNT(cases) - 2, "sm_80");
    run_cases(cases + COUNT(cases) - 2, 2, "sm_80");
}
