// The attn dialect: what attention needs and upstream MLIR lacks.
//
// Loaded into every context (the text is part of the binary) and given to
// mlir-opt with --irdl-file=, so that the dumps of all stages can be read and
// verified with the stock tool.  A variable used twice means "the same type";
// listed attributes are required, optional ones are not listed.  Shapes, layouts
// and ranges of attributes are checked by verify.c.
irdl.dialect @attn {
  // One attention of the function around it, whose further arguments its functions
  // take: mask and score the sizes, params, tensors; classify and kv_bounds all.
  // Optional: score mask classify kv_bounds (symbols), dense.
  irdl.operation @attention {
    %q = irdl.base "!builtin.memref"
    %v = irdl.base "!builtin.memref"
    %lse = irdl.base "!builtin.memref"
    %f32 = irdl.is f32
    %int = irdl.base "#builtin.integer"
    irdl.operands(q: %q, k: %q, v: %v, o: %v, lse: %lse, scale: %f32)
    irdl.attributes { "group" = %int }
  }
  // Element of a captured tensor; indices are clamped to its extents.  One variable
  // an index, since IRDL gives all values of a variadic one type while an index may
  // be a scalar, row, column or tile: operandSegmentSizes says how many there are.
  irdl.operation @read {
    %memref = irdl.base "!builtin.memref"
    %i0 = irdl.any
    %i1 = irdl.any
    %i2 = irdl.any
    %i3 = irdl.any
    %i4 = irdl.any
    %i5 = irdl.any
    %i6 = irdl.any
    %i7 = irdl.any
    %value = irdl.any
    irdl.operands(tensor: %memref, i0: %i0, i1: optional %i1, i2: optional %i2,
                  i3: optional %i3, i4: optional %i4, i5: optional %i5, i6: optional %i6,
                  i7: optional %i7)
    irdl.results(value: %value)
  }
  // Rows row.. of src[b, h] as a fresh shared-memory tile; rows >= limit are zeros.
  // Optional i32: pack_gqa = G on loads of Q, copies and stores: row r is query r / G of
  // head h + r mod G.
  irdl.operation @load {
    %src = irdl.base "!builtin.memref"
    %dst = irdl.base "!builtin.memref"
    %i32 = irdl.is i32
    %name = irdl.base "#builtin.string"
    irdl.operands(src: %src, b: %i32, h: %i32, row: %i32, limit: %i32)
    irdl.results(tile: %dst)
    irdl.attributes { "name" = %name }
  }
  // acc + a*b, or acc + a*transpose(b) with the unit attribute transpose_b.
  irdl.operation @dot {
    %a = irdl.any
    %b = irdl.base "!builtin.memref"
    %t = irdl.base "!builtin.vector"
    irdl.operands(a: %a, b: %b, acc: %t)
    irdl.results(result: %t)
  }
  // A shared-memory tile as the A operand of dots, in registers.
  irdl.operation @fragments {
    %s = irdl.base "!builtin.memref"
    %t = irdl.base "!builtin.vector"
    irdl.operands(tile: %s)
    irdl.results(result: %t)
  }
  // One key block of the running softmax.
  irdl.operation @softmax_step {
    %acc = irdl.base "!builtin.vector"
    %m = irdl.base "!builtin.vector"
    %l = irdl.base "!builtin.vector"
    %s = irdl.base "!builtin.vector"
    %v = irdl.base "!builtin.memref"
    irdl.operands(acc: %acc, m: %m, l: %l, s: %s, v: %v)
    irdl.results(acc_new: %acc, m_new: %m, l_new: %l)
  }
  // Division by the row sums, and the log-sum-exp of each row.
  irdl.operation @softmax_finish {
    %acc = irdl.base "!builtin.vector"
    %m = irdl.base "!builtin.vector"
    %l = irdl.base "!builtin.vector"
    irdl.operands(acc: %acc, m: %m, l: %l)
    irdl.results(o: %acc, lse: %m)
  }
  // f32 product rounded toward +inf.
  irdl.operation @mul_rp {
    %t = irdl.any
    irdl.operands(a: %t, b: %t)
    irdl.results(result: %t)
  }
  // l + the elements of p that the lane itself holds.
  irdl.operation @partial_sum {
    %p = irdl.base "!builtin.vector"
    %l = irdl.base "!builtin.vector"
    irdl.operands(p: %p, l: %l)
    irdl.results(l_new: %l)
  }
  // exp2; the elements of the listed column units (2*(column / 8) + column mod 2) by a
  // polynomial with these coefficients, lowest power first, the others on the MUFU.
  irdl.operation @exp2_split {
    %t = irdl.base "!builtin.vector"
    %units = irdl.base "#builtin.dense_array"
    %coefficients = irdl.base "#builtin.dense_array"
    irdl.operands(x: %t)
    irdl.results(result: %t)
    irdl.attributes { "units" = %units, "coefficients" = %coefficients }
  }
  // Rows row.. < limit of dst[b, h].  Optional unit: optional (dst may be null).
  irdl.operation @store {
    %value = irdl.base "!builtin.vector"
    %dst = irdl.base "!builtin.memref"
    %i32 = irdl.is i32
    irdl.operands(value: %value, dst: %dst, b: %i32, h: %i32, row: %i32, limit: %i32)
  }
  // Bit l of the result is the predicate of lane l.
  irdl.operation @ballot {
    %i1 = irdl.is i1
    %i32 = irdl.is i32
    irdl.operands(predicate: %i1)
    irdl.results(mask: %i32)
  }
  // Reduction over the 32 lanes of a warp, the same in all of them.
  irdl.operation @warp_reduce {
    %i32 = irdl.is i32
    %f32 = irdl.is f32
    %t = irdl.any_of(%i32, %f32)
    %kind = irdl.base "#builtin.string"
    irdl.operands(x: %t)
    irdl.results(result: %t)
    irdl.attributes { "kind" = %kind }
  }
  // A place in shared memory.  Rank 2 and 3 have pitch, swizzle_bits, swizzle_shift.
  irdl.operation @shared {
    %t = irdl.base "!builtin.memref"
    %name = irdl.base "#builtin.string"
    %int = irdl.base "#builtin.integer"
    irdl.results(buffer: %t)
    irdl.attributes { "name" = %name, "byte_offset" = %int }
  }
  // One stage of a multi-stage buffer.
  irdl.operation @stage {
    %buffer = irdl.base "!builtin.memref"
    %i32 = irdl.is i32
    %tile = irdl.base "!builtin.memref"
    irdl.operands(buffer: %buffer, index: %i32)
    irdl.results(tile: %tile)
  }
  // cp.async of rows row.. of src[b, h] into dst; rows >= limit are zeros.
  irdl.operation @copy_async {
    %src = irdl.base "!builtin.memref"
    %dst = irdl.base "!builtin.memref"
    %i32 = irdl.is i32
    irdl.operands(src: %src, b: %i32, h: %i32, row: %i32, limit: %i32, dst: %dst)
  }
  // Ends a group of asynchronous copies.
  irdl.operation @commit_group { }
  // Waits until at most `pending` groups are in flight.
  irdl.operation @wait_group {
    %int = irdl.base "#builtin.integer"
    irdl.attributes { "pending" = %int }
  }

  // ---- Votes, mbarriers, TMA, wgmma and roles: builders in build_sm90.h.

  // Largest of the lane's own elements of each row: MxN -> Mx4, i32 or f32 (a NaN never is).
  irdl.operation @partial_max {
    %tile = irdl.base "!builtin.vector"
    %top = irdl.base "!builtin.vector"
    irdl.operands(tile: %tile)
    irdl.results(top: %top)
  }
  // True in every lane when the predicate (i1, Mx1 or Mx4) holds in any lane of the warp.
  irdl.operation @vote_any {
    %predicate = irdl.any
    %i1 = irdl.is i1
    irdl.operands(predicate: %predicate)
    irdl.results(any: %i1)
  }
  // Lane 0's value; the operand is the same in all lanes already.
  irdl.operation @uniform {
    %i32 = irdl.is i32
    irdl.operands(x: %i32)
    irdl.results(same: %i32)
  }
  // The operand of lane `lane` mod 32; `lane` is the same in all lanes.
  irdl.operation @lane_value {
    %i32 = irdl.is i32
    irdl.operands(x: %i32, lane: %i32)
    irdl.results(same: %i32)
  }
  // True in one lane of the warp.
  irdl.operation @elect {
    %i1 = irdl.is i1
    irdl.results(elected: %i1)
  }
  // mbarriers in shared memory, each completed by `arrivals` arrivals.
  irdl.operation @mbarriers {
    %t = irdl.base "!builtin.memref"
    %name = irdl.base "#builtin.string"
    %offset = irdl.base "#builtin.integer"
    %arrivals = irdl.base "#builtin.integer"
    irdl.results(barriers: %t)
    irdl.attributes { "name" = %name, "byte_offset" = %offset, "arrivals" = %arrivals }
  }
  irdl.operation @mbarrier_init {
    %t = irdl.base "!builtin.memref"
    irdl.operands(barriers: %t)
  }
  irdl.operation @fence_mbarrier_init { }
  // `launch_dependents`: the grids that depend on this one may start; `wait`: until the grids
  // that it depends on are complete.  No more than an announcement to other grids.
  irdl.operation @griddepcontrol {
    %action = irdl.base "#builtin.string"
    irdl.attributes { "action" = %action }
  }
  // Waits for the phase of this parity.
  irdl.operation @mbarrier_wait {
    %t = irdl.base "!builtin.memref"
    %i32 = irdl.is i32
    irdl.operands(barriers: %t, index: %i32, parity: %i32)
  }
  // One elected lane of each warp arrives.  Optional unit: single (this thread does).
  irdl.operation @mbarrier_arrive {
    %t = irdl.base "!builtin.memref"
    %i32 = irdl.is i32
    irdl.operands(barriers: %t, index: %i32)
  }
  // Arrives and announces bytes of asynchronous copies.
  irdl.operation @mbarrier_expect_tx {
    %t = irdl.base "!builtin.memref"
    %i32 = irdl.is i32
    %int = irdl.base "#builtin.integer"
    irdl.operands(barriers: %t, index: %i32)
    irdl.attributes { "bytes" = %int }
  }
  // TMA copy of rows row.. of src[b, h]; outside of src: zeros.
  irdl.operation @tma_load {
    %src = irdl.base "!builtin.memref"
    %dst = irdl.base "!builtin.memref"
    %t = irdl.base "!builtin.memref"
    %i32 = irdl.is i32
    irdl.operands(src: %src, b: %i32, h: %i32, row: %i32, dst: %dst, barriers: %t, index: %i32)
  }
  // A 16-bit register tile to a tile of panels, for attn.tma_store to read.
  irdl.operation @stmatrix {
    %v = irdl.base "!builtin.vector"
    %dst = irdl.base "!builtin.memref"
    irdl.operands(value: %v, dst: %dst)
  }
  // TMA copy of a tile to rows row.. of dst[b, h], a bulk group of its own; rows outside of dst
  // are left out.
  irdl.operation @tma_store {
    %src = irdl.base "!builtin.memref"
    %dst = irdl.base "!builtin.memref"
    %i32 = irdl.is i32
    irdl.operands(src: %src, dst: %dst, b: %i32, h: %i32, row: %i32)
  }
  // Until the thread's attn.tma_store have read their tiles.
  irdl.operation @tma_store_wait { }
  // attn.dot on the warpgroup's tensor core, asynchronous until attn.wgmma_wait.
  irdl.operation @wgmma {
    %a = irdl.any
    %b = irdl.base "!builtin.memref"
    %t = irdl.base "!builtin.vector"
    irdl.operands(a: %a, b: %b, acc: %t)
    irdl.results(result: %t)
  }
  irdl.operation @wgmma_fence { }
  irdl.operation @wgmma_commit { }
  irdl.operation @wgmma_wait {
    %t = irdl.base "!builtin.vector"
    %int = irdl.base "#builtin.integer"
    irdl.operands(value: %t)
    irdl.results(done: %t)
    irdl.attributes { "pending" = %int }
  }
  // Number of the consumer warpgroup whose program this is, from 0; gone after `pipeline`.
  irdl.operation @consumer {
    %i32 = irdl.is i32
    irdl.results(number: %i32)
  }
  // Passes begin <= i < end of the key loop that follows hold what this consumer's rows
  // attend to; it skips the others.  Gone after `pipeline`.
  irdl.operation @own_blocks {
    %i32 = irdl.is i32
    irdl.operands(begin: %i32, end: %i32)
  }
  // setmaxnreg; action: "increase" or "decrease".
  irdl.operation @set_max_registers {
    %int = irdl.base "#builtin.integer"
    %action = irdl.base "#builtin.string"
    irdl.attributes { "count" = %int, "action" = %action }
  }
  // Named barriers of `threads` threads; arrive does not wait.
  irdl.operation @bar_sync {
    %i32 = irdl.is i32
    %int = irdl.base "#builtin.integer"
    irdl.operands(id: %i32)
    irdl.attributes { "threads" = %int }
  }
  irdl.operation @bar_arrive {
    %i32 = irdl.is i32
    %int = irdl.base "#builtin.integer"
    irdl.operands(id: %i32)
    irdl.attributes { "threads" = %int }
  }
  // atom.inc: the old value of workspace[element]; after `wrap` it starts at 0 again.
  irdl.operation @atomic_inc {
    %t = irdl.base "!builtin.memref"
    %i32 = irdl.is i32
    irdl.operands(workspace: %t, element: %i32, wrap: %i32)
    irdl.results(old: %i32)
  }
}
