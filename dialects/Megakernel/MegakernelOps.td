#ifndef TRAINKERNEL_DIALECTS_MEGAKERNEL_MEGAKERNELOPS_TD
#define TRAINKERNEL_DIALECTS_MEGAKERNEL_MEGAKERNELOPS_TD

include "MegakernelDialect.td"
include "mlir/IR/BuiltinAttributes.td"
include "mlir/IR/OpAsmInterface.td"
include "mlir/IR/SymbolInterfaces.td"
include "mlir/Interfaces/ControlFlowInterfaces.td"
include "mlir/Interfaces/FunctionInterfaces.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

class Megakernel_Op<string mnemonic, list<Trait> traits = []>
    : Op<Megakernel_Dialect, mnemonic, traits>;

//===----------------------------------------------------------------------===//
// Graph form
//===----------------------------------------------------------------------===//

def Megakernel_StepOp : Megakernel_Op<"step", [FunctionOpInterface, IsolatedFromAbove, SingleBlock]> {
  let summary = "a whole training step on tensors";
  let description = [{
    A function from statically shaped tensors to statically shaped tensors: the forward pass, the loss, the
    gradients and the optimizer update. Roles say which argument is trained state and which result replaces it.
    `fp32` says how contractions may multiply float32 operands: `ieee`, which is meant where it is missing, in float32;
    `tf32x3` on matrix units, each operand as the sum of two tf32 parts.

    Constraints:

    * (S1) every argument and result is a ranked tensor of static shape, of f64, f32, bf16, f16, i64, i32, i16, i8 or
      i1; nothing reads or writes one without elements;
    * (S2) every argument has the role state, batch or constant;
    * (S3) every result has the role loss, gradient, new_state or output;
    * (S4) a new_state result, and no other, names, by `megakernel.updates`, a state argument of its own type, each
      state argument at most once;
    * (S5) a `megakernel.gradient_of` attribute names a state argument;
    * (S6) `megakernel.uses_gradients` and `megakernel.uses_values` are arrays of argument indices.

    Example:

    ```mlir
    megakernel.step @scale(%w: tensor<4xf32> {megakernel.role = #megakernel.role<state>})
        -> (tensor<4xf32> {megakernel.role = #megakernel.role<new_state>, megakernel.updates = 0 : i64}) {
      megakernel.return %w : tensor<4xf32>
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                       TypeAttrOf<FunctionType>:$function_type,
                       OptionalAttr<DictArrayAttr>:$arg_attrs,
                       OptionalAttr<DictArrayAttr>:$res_attrs,
                       OptionalAttr<Megakernel_Fp32Attr>:$fp32);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    Region *getCallableRegion() { return &getBody(); }
    ArrayRef<Type> getArgumentTypes() { return getFunctionType().getInputs(); }
    ArrayRef<Type> getResultTypes() { return getFunctionType().getResults(); }
    /// The role of an argument or result, or nothing where the attribute is missing.
    std::optional<Role> getArgRole(unsigned index);
    std::optional<Role> getResultRole(unsigned index);
    /// The state argument that result `index` replaces, or nothing.
    std::optional<unsigned> getUpdatedArg(unsigned index);
    /// The argument whose gradient result `index` is, or nothing.
    std::optional<unsigned> getGradientArg(unsigned index);
    /// Whether the step takes a gradient by argument `index`.
    bool isDifferentiated(unsigned index);
    /// The arguments by which a gradient is taken that result `index` depends on, as far as it is known.
    llvm::BitVector getUsedGradients(unsigned index);
    /// The arguments that result `index` depends on otherwise than through a gradient, as far as it is known.
    llvm::BitVector getUsedValues(unsigned index);
  }];
}

def Megakernel_ReturnOp : Megakernel_Op<"return", [Pure, ReturnLike, Terminator,
                                                   ParentOneOf<["StepOp", "KernelOp"]>]> {
  let summary = "ends a step or a kernel";
  let description = [{
    In a step it names the results. In a kernel it has no operands: results were written to arguments.

    Example:

    ```mlir
    megakernel.kernel @nothing() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
      megakernel.return
    }
    ```
  }];
  let arguments = (ins Variadic<AnyType>:$operands);
  let assemblyFormat = "($operands^ `:` type($operands))? attr-dict";
  let builders = [OpBuilder<(ins), [{ build($_builder, $_state, ValueRange()); }]>];
  let hasVerifier = 1;
}

def Megakernel_FusedOp : Megakernel_Op<"fused", [Pure, IsolatedFromAbove, SingleBlock]> {
  let summary = "ops that are computed together, tile by tile";
  let description = [{
    The region computes its results from its arguments with `linalg.generic`, `tensor` view ops and constants.
    What flows between the ops inside never reaches memory. At most one op is a reduction (or contraction):
    the ops before it are its prologue, the ops after it its epilogue.

    Constraints:

    * (F1) region arguments have the types of the operands, yielded values those of the results;
    * (F2) the region holds only constants, `linalg.generic`, `linalg.fill`, `tensor.empty`,
      `tensor.expand_shape`, `tensor.collapse_shape`, `tensor.extract_slice` and `tensor.insert_slice`, all of static
      shape and offset and without zero extents;
    * (F3) at most one `linalg.generic` has reduction iterators; its indexing maps are projected permutations, and
      its results have one map, over all of its parallel loops;
    * (F4) all results have one shape, and where there is a reduction, its result's shape.

    Example:

    ```mlir
    megakernel.step @relu(%x: tensor<8xf32> {megakernel.role = #megakernel.role<batch>})
        -> (tensor<8xf32> {megakernel.role = #megakernel.role<output>}) {
      %y = megakernel.fused(%a = %x : tensor<8xf32>) -> tensor<8xf32> {
        %zero = arith.constant 0.0 : f32
        %init = tensor.empty() : tensor<8xf32>
        %r = linalg.generic {indexing_maps = [affine_map<(d0) -> (d0)>, affine_map<(d0) -> (d0)>],
                             iterator_types = ["parallel"]}
            ins(%a : tensor<8xf32>) outs(%init : tensor<8xf32>) {
        ^bb0(%in: f32, %out: f32):
          %m = arith.maximumf %in, %zero : f32
          linalg.yield %m : f32
        } -> tensor<8xf32>
        megakernel.yield %r : tensor<8xf32>
      }
      megakernel.return %y : tensor<8xf32>
    }
    ```
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$inputs);
  let results = (outs Variadic<AnyRankedTensor>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
  let hasCanonicalizer = 1;
}

def Megakernel_YieldOp : Megakernel_Op<"yield", [Pure, ReturnLike, Terminator, ParentOneOf<["FusedOp", "TileOp"]>]> {
  let summary = "names the results of a fused region";
  let description = [{
    Ends the region of a `megakernel.fused` or a `megakernel.tile`. See `megakernel.fused` for an example.
  }];
  let arguments = (ins Variadic<AnyRankedTensor>:$operands);
  let assemblyFormat = "($operands^ `:` type($operands))? attr-dict";
  let builders = [OpBuilder<(ins), [{ build($_builder, $_state, ValueRange()); }]>];
}

//===----------------------------------------------------------------------===//
// Scheduled form
//===----------------------------------------------------------------------===//

def Megakernel_KernelOp : Megakernel_Op<"kernel", [FunctionOpInterface, IsolatedFromAbove, SingleBlock]> {
  let summary = "a whole training step as one kernel";
  let description = [{
    Arguments are the step's inputs, then its outputs, all as contiguous buffers with the attributes that they
    had on the step. The body runs on every CTA: buffers, phases in program order, barriers, commits.

    `grid` CTAs of `threads` threads run at once, in clusters of `cluster` CTAs. `target` names what the schedule was
    made for. `shared_bytes` is the dynamic shared memory of one CTA, `arena_bytes` the size of the arena that
    `megakernel.buffer` ops view. These three are set when known. `fp32` is that of the step.

    `plan` says how the schedule was chosen, for reports: `considered` lists the plans by `grid`, `cluster` and
    predicted time (`ns`), `chosen` is the planner's, `overridden` what the given `overrides` made of it.
    `launch_ns` and `predicted_ns` are the predicted times of the launch and of the whole step in nanoseconds.

    On a CPU a worker thread stands for a CTA, and the runtime chooses how many there are: tile `t` runs on worker
    `(first_cta + t) mod workers`. A barrier that joins all CTAs joins all workers, one of scope cta none: a worker
    does one thing after the other.

    A launch runs the body once, or, where it ends with `megakernel.repeat`, once for each of the launch's steps, from
    the first op to the last. In step `i`, counted from 0,

    * a batch argument is entry `i mod ring` of `ring` entries that lie behind one another;
    * a state argument that an output updates is itself in step 0 and that output from step 1 on;
    * an output that updates nothing is entry `i` of as many entries as there are steps;
    * every other argument, and the arena, is the same in all steps.

    Launches of one step and of several may have a kernel each: `step_count` says for which it is, and is missing where
    it is for both.

    Constraints:

    * (K1) every argument is a memref with an identity layout, of a shape and an element type of (S1);
    * (K2) grid and cluster are positive, grid a multiple of cluster, threads a multiple of 32 from 32 to 1024;
      sizes in bytes are not negative;
    * (K3) `megakernel.updates` stands on an output and names a state input of its type, each at most once;
    * (K4) the body holds only buffers, their reshapes (`memref.expand_shape`, `memref.collapse_shape`), phases,
      barriers, commits and, last, a repeat;
    * (K5) a kernel for launches of one step does not repeat.

    Example:

    ```mlir
    megakernel.kernel @copy(%x: memref<8xf32> {megakernel.role = #megakernel.role<batch>},
                            %y: memref<8xf32> {megakernel.role = #megakernel.role<output>})
        attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
      megakernel.phase {
        megakernel.tile ins(%a = %x : memref<8xf32>) outs(%y : memref<8xf32>) sizes [8] {
          megakernel.yield %a : tensor<8xf32>
        }
      }
      megakernel.return
    }
    ```
  }];
  let arguments = (ins SymbolNameAttr:$sym_name,
                       TypeAttrOf<FunctionType>:$function_type,
                       OptionalAttr<DictArrayAttr>:$arg_attrs,
                       OptionalAttr<DictArrayAttr>:$res_attrs,
                       I64Attr:$grid, I64Attr:$cluster, I64Attr:$threads,
                       OptionalAttr<StrAttr>:$target,
                       OptionalAttr<I64Attr>:$shared_bytes,
                       OptionalAttr<I64Attr>:$arena_bytes,
                       OptionalAttr<DictionaryAttr>:$plan,
                       OptionalAttr<I64Attr>:$launch_ns,
                       OptionalAttr<I64Attr>:$predicted_ns,
                       OptionalAttr<Megakernel_Fp32Attr>:$fp32,
                       OptionalAttr<Megakernel_StepCountAttr>:$step_count);
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    Region *getCallableRegion() { return &getBody(); }
    ArrayRef<Type> getArgumentTypes() { return getFunctionType().getInputs(); }
    ArrayRef<Type> getResultTypes() { return getFunctionType().getResults(); }
    std::optional<Role> getArgRole(unsigned index);
    /// True for arguments that the kernel writes.
    bool isOutput(unsigned index);
    /// For an output that replaces a state input: that input's index.
    std::optional<unsigned> getUpdatedArg(unsigned index);
    /// For a state input that an output replaces: that output's index.
    std::optional<unsigned> getUpdatingArg(unsigned index);
    /// The op that starts the next step of a launch, or null.
    RepeatOp getRepeat();
    /// The least scope that joins all CTAs.
    Scope getJoiningScope();
  }];
}

def Megakernel_BufferOp : Megakernel_Op<"buffer", [Pure, ParentOneOf<["KernelOp"]>]> {
  let summary = "a value's place in the arena or on chip";
  let description = [{
    A contiguous row-major buffer in global memory. `offset` is its place in the arena, in bytes; it is missing
    until buffers are planned. Buffers whose lifetimes are apart may overlap.

    With `shared_at` it lies on chip instead: each CTA has a part of it in its shared memory, from that byte on. A part
    is `part` elements that follow each other in row-major order; part `p` lies with CTA `(first_cta + p) mod grid`, and
    the tiles on a CTA touch no other part than its own.

    One that `alternates` has two places in the arena, the second one at the next multiple of 16 behind the first: the
    first is that of even steps of a launch, counted from 0, the second that of odd ones. So a step need not wait until
    others have read what the one before left.

    Constraints:

    * (B1) the type is a memref with an identity layout and without zero extents, of an element type of (S1) of
      `megakernel.step`;
    * (B2) the offset, where set, is a non-negative multiple of 16;
    * (B3) `shared_at` is a non-negative multiple of 16 and stands with `part` and without `offset`; neither `part` nor
      `first_cta` stands without it;
    * (B4) parts are of one size, a multiple of 16 bytes, and no more than CTAs;
    * (B5) what alternates has no `shared_at`.

    Example:

    ```mlir
    megakernel.kernel @empty() attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
      %h = megakernel.buffer {offset = 256 : i64} : memref<32x64xbf16>
      megakernel.return
    }
    ```
  }];
  let arguments = (ins OptionalAttr<I64Attr>:$offset, OptionalAttr<I64Attr>:$shared_at, OptionalAttr<I64Attr>:$part,
                       DefaultValuedAttr<I64Attr, "0">:$first_cta, UnitAttr:$alternates);
  let results = (outs MemRefRankOf<[AnyType], [0, 1, 2, 3, 4, 5, 6, 7, 8]>:$result);
  let builders = [OpBuilder<(ins "::mlir::Type":$type), [{
    build($_builder, $_state, type, /*offset=*/nullptr, /*shared_at=*/nullptr, /*part=*/nullptr, /*first_cta=*/0,
          /*alternates=*/false);
  }]>];
  let extraClassDeclaration = [{
    bool isOnChip() { return getSharedAt().has_value(); }
    /// How many parts a buffer on chip has.
    int64_t getNumParts() { return getType().getNumElements() / static_cast<int64_t>(*getPart()); }
    /// Bytes from the place of even steps to that of odd ones, and of all places.
    int64_t getBytesOfPlace();
    int64_t getBytesInArena();
  }];
  let assemblyFormat = "attr-dict `:` type($result)";
  let hasVerifier = 1;
}

def Megakernel_PhaseOp : Megakernel_Op<"phase", [SingleBlock, NoTerminator, ParentOneOf<["KernelOp"]>]> {
  let summary = "tile ops that need no order among themselves";
  let description = [{
    All tiles of all tile ops of a phase may run at once, in any order, on the CTAs that their placement names.
    `predicted` is what that CTA is predicted to spend which the next barrier of all CTAs waits for.

    Constraints:

    * (P1) the region holds only `megakernel.tile`.

    Example: see `megakernel.kernel`.
  }];
  let arguments = (ins OptionalAttr<Megakernel_CostAttr>:$predicted);
  let builders = [OpBuilder<(ins), [{ build($_builder, $_state, /*predicted=*/nullptr); }]>];
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "attr-dict-with-keyword $body";
  let hasVerifier = 1;
}

def Megakernel_TileOp : Megakernel_Op<"tile", [AttrSizedOperandSegments, IsolatedFromAbove, SingleBlock, ParentOneOf<["PhaseOp"]>,
    DeclareOpInterfaceMethods<MemoryEffectsOpInterface>]> {
  let summary = "a fused region computed tile by tile";
  let description = [{
    The region is that of a `megakernel.fused`, its arguments read from buffers, its results written to buffers.
    `sizes` are the tile's extents over the iteration domain of the region's reduction (parallel dimensions
    first, in the order of the result, then reduction dimensions), or over the result's shape where there is
    none. Tiles over the parallel dimensions are numbered row-major; tile `t` runs on CTA
    `(first_cta + t) mod grid`. A reduction dimension is walked in steps of its size by the CTA of the tile.

    `prefetched` numbers the inputs that may be read before the barrier ahead of the phase, while other CTAs still work
    on what comes before it. Ahead of the first phase is the barrier of `megakernel.repeat`. `predicted` is what a CTA
    is predicted to spend on one tile.

    A contraction's operand that does not depend on the tile may be kept in shared memory, from byte `kept_at` on, for
    later tile ops of the same CTAs; one that `reuses_kept` finds it there. Threads may hold what they multiply of it
    in registers from one phase to the next, where it stands `in_registers`. Nothing is kept from one step of a launch
    to the next. The other operand is not staged where a CTA has it already: `rows_at` is the byte of shared memory
    from which on the rows of its tile follow each other.

    `groups` is how many groups of threads share out a contraction's k, which the order of the additions depends on;
    where it is missing, that many as are fastest.

    Constraints:

    * (T1) region arguments are tensors of the inputs' shapes and element types, yielded values those of the
      outputs;
    * (T2) `sizes` has one positive entry per dimension of the domain, `first_cta` is not negative;
    * (T3) the region fulfils F2, F3 and F4 of `megakernel.fused`;
    * (T4) every output is a buffer or an output argument of the kernel;
    * (T5) `prefetched` numbers inputs, in ascending order;
    * (T6) `kept_at` and `rows_at` stand on a contraction and are non-negative multiples of 16, `reuses_kept` and
      `in_registers` stand beside `kept_at`;
    * (T7) `groups` stands on a contraction and is a power of two.

    Example: see `megakernel.kernel`.
  }];
  let arguments = (ins Variadic<AnyMemRef>:$inputs, Variadic<AnyMemRef>:$outputs,
                       DenseI64ArrayAttr:$sizes,
                       DefaultValuedAttr<I64Attr, "0">:$first_cta,
                       OptionalAttr<DenseI64ArrayAttr>:$prefetched,
                       OptionalAttr<I64Attr>:$kept_at,
                       UnitAttr:$reuses_kept,
                       UnitAttr:$in_registers,
                       OptionalAttr<I64Attr>:$rows_at,
                       OptionalAttr<I64Attr>:$groups,
                       OptionalAttr<Megakernel_CostAttr>:$predicted);
  let builders = [OpBuilder<(ins "::mlir::ValueRange":$inputs, "::mlir::ValueRange":$outputs,
                             "::llvm::ArrayRef<int64_t>":$sizes), [{
    build($_builder, $_state, inputs, outputs, sizes, /*first_cta=*/0, /*prefetched=*/nullptr, /*kept_at=*/nullptr,
          /*reuses_kept=*/false, /*in_registers=*/false, /*rows_at=*/nullptr, /*groups=*/nullptr,
          /*predicted=*/nullptr);
  }]>];
  let extraClassDeclaration = [{
    /// True where input `index` may be read before the barrier ahead of the phase.
    bool isPrefetched(unsigned index) {
      return getPrefetched() && ::llvm::is_contained(*getPrefetched(), index);
    }
  }];
  let regions = (region SizedRegion<1>:$body);
  let hasCustomAssemblyFormat = 1;
  let hasVerifier = 1;
  let hasRegionVerifier = 1;
}

def Megakernel_BarrierOp : Megakernel_Op<"barrier", [ParentOneOf<["KernelOp"]>]> {
  let summary = "orders all accesses before it and after it";
  let description = [{
    Every access of every thread of the scope before the barrier happens before every access after it. All CTAs pass
    it: cta joins the threads of each, cluster the CTAs of each cluster, grid all of them. A kernel whose grid is no
    more than that is joined as a whole. `predicted_ns` is the predicted time from the last arrival on, in nanoseconds.

    Example:

    ```mlir
    megakernel.kernel @empty() attributes {grid = 2 : i64, cluster = 1 : i64, threads = 32 : i64} {
      megakernel.barrier <grid>
      megakernel.return
    }
    ```
  }];
  let arguments = (ins Megakernel_ScopeAttr:$scope, OptionalAttr<I64Attr>:$predicted_ns);
  let builders = [OpBuilder<(ins "Scope":$scope), [{ build($_builder, $_state, scope, /*predicted_ns=*/nullptr); }]>];
  let assemblyFormat = "$scope attr-dict";
}

def Megakernel_RepeatOp : Megakernel_Op<"repeat", [ParentOneOf<["KernelOp"]>]> {
  let summary = "starts the next step of a launch";
  let description = [{
    Where the launch has another step, all threads of the scope meet, as at a `megakernel.barrier`, and the body of
    the kernel runs again for that step. After the last step the kernel ends.

    Constraints:

    * (R1) only `megakernel.return` follows.

    Example:

    ```mlir
    megakernel.kernel @count(%n: memref<i64> {megakernel.role = #megakernel.role<state>},
                             %m: memref<i64> {megakernel.role = #megakernel.role<new_state>,
                                              megakernel.updates = 0 : i64})
        attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
      megakernel.commit %n to %m : memref<i64>
      megakernel.repeat <cta>
      megakernel.return
    }
    ```
  }];
  let arguments = (ins Megakernel_ScopeAttr:$scope);
  let assemblyFormat = "$scope attr-dict";
  let hasVerifier = 1;
}

def Megakernel_CommitOp : Megakernel_Op<"commit", [ParentOneOf<["KernelOp"]>, SameTypeOperands]> {
  let summary = "makes a computed value the new state";
  let description = [{
    Copies the new value to the output that replaces a state argument. The output may be the very memory of the
    state argument, so a commit comes after the last read of that state. Committing disappears where the tile
    that computes the value may write the output directly.

    Constraints:

    * (C1) source and target have the same type;
    * (C2) the target is an output argument of the kernel.

    Example:

    ```mlir
    megakernel.kernel @keep(%w: memref<8xf32> {megakernel.role = #megakernel.role<state>},
                            %n: memref<8xf32> {megakernel.role = #megakernel.role<new_state>,
                                               megakernel.updates = 0 : i64})
        attributes {grid = 1 : i64, cluster = 1 : i64, threads = 32 : i64} {
      megakernel.commit %w to %n : memref<8xf32>
      megakernel.return
    }
    ```
  }];
  let arguments = (ins AnyMemRef:$source, AnyMemRef:$target);
  let assemblyFormat = "$source `to` $target attr-dict `:` type($source)";
  let hasVerifier = 1;
}

#endif
