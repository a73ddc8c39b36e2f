//! Vector iterations of a threadgroup: the loop over its vectors, the position of each thread, and the mask of existing threads.

use elinvar_ir::{BinaryOp, BlockId, CastOp, Const, IntPredicate, Op, Operand, Type, ValueId};

use crate::analysis::lane_layout::Layout;
use crate::support::builder::{Builder, Counter, i32_const};
use crate::vector::emit::{Emit, Forms};
use crate::vector::full_size::{DynamicRows, FullSize};

/// A loop over iterations whose body is still to be emitted.
pub(crate) struct Iterations {
    /// Number of the iteration, an i32.
    pub iteration: Operand,
    /// The same as an i64.
    pub wide: Operand,
    /// Position of the iteration's vectors.
    place: Place,
    /// Start of the body, without a terminator.
    pub body: BlockId,
    /// Target of the body's end.
    pub next: BlockId,
    /// Target of the loop's exit; empty.
    pub done: BlockId,
}

/// Position of an iteration in its threadgroup.
enum Place {
    /// To be computed from the number of the iteration.
    Number,
    /// Number of the row, and of the iteration in it.
    Row(Operand, Operand),
    /// Position of the first thread.
    Thread([Operand; 3]),
}

/// Emits the loop over the iterations of a row, or of all rows if none is given, entered from the block that `b` appends to. It ends
/// early if an iteration has stored true in the slot `last`.
pub(crate) fn vector_loop(
    b: &mut Builder<'_>,
    layout: &Layout,
    full: &FullSize,
    row: Option<&Operand>,
    last: Option<&Operand>,
) -> Iterations {
    if let Some(dynamic) = &full.dynamic {
        return dynamic_loop(b, layout, (full, dynamic), row, last);
    }
    let zero = i32_const(0).into();
    let (row, rows) = row.map_or((&zero, 1), |row| (row, layout.rows()));
    let (body, next, done) = (b.f.new_block(None), b.f.new_block(None), b.f.new_block(None));
    let count = layout.iterations() / rows;
    let first = by(b, BinaryOp::Mul, row, count);
    let before = b.at;
    b.br(body);
    b.at = next;
    let in_row: Operand = if count == 1 {
        b.br(done);
        b.at = body;
        i32_const(0).into()
    } else {
        let counter = Counter::new(b.f, body, "step", Type::I32, (i32_const(0), before));
        again(b, counter, i32_const(count), last, done).into()
    };
    let iteration = match (rows, count) {
        (1, _) => in_row.clone(),
        (_, 1) => first,
        _ => b.binary(BinaryOp::Add, "nuw nsw", &Type::I32, first, in_row.clone()).into(),
    };
    let wide = b.cast(CastOp::ZExt, Type::I32, iteration.clone(), Type::I64).into();
    let place = if rows > 1 { Place::Row(row.clone(), in_row) } else { Place::Number };
    Iterations { iteration, wide, place, body, next, done }
}

/// Ends the loop of a counter, unless `last` holds, and continues at its body. Returns the counter's value.
fn again(
    b: &mut Builder<'_>,
    counter: Counter,
    count: impl Into<Operand>,
    last: Option<&Operand>,
    done: BlockId,
) -> ValueId {
    let (body, value) = (counter.at, counter.value);
    let mut more = counter.count(b, "nuw nsw", count);
    if let Some(slot) = last {
        let last = b.load(Type::I1, slot.clone(), None);
        let not_last = b.binary(BinaryOp::Xor, "", &Type::I1, last, Const::int(1, -1));
        more = b.binary(BinaryOp::And, "", &Type::I1, more, not_last);
    }
    b.cond_br(more, body, done);
    b.at = body;
    value
}

/// The loop for a dynamic size. Positions are counted, because they would take a division otherwise.
fn dynamic_loop(
    b: &mut Builder<'_>,
    layout: &Layout,
    (full, dynamic): (&FullSize, &DynamicRows),
    row: Option<&Operand>,
    last: Option<&Operand>,
) -> Iterations {
    let (body, next, done) = (b.f.new_block(None), b.f.new_block(None), b.f.new_block(None));
    let (per_row, [size_x, size_y, _]) = (&dynamic.per_row, &full.threads);
    let zero = || Operand::from(i32_const(0));
    let times = |b: &mut Builder<'_>, a: &Operand, n: &Operand| -> Operand {
        b.binary(BinaryOp::Mul, "nuw nsw", &Type::I32, a.clone(), n.clone()).into()
    };
    // The first iteration, its row's position, and the number of iterations.
    let (first, position, count) = match row {
        None => (zero(), [zero(), zero()], times(b, per_row, &dynamic.rows)),
        Some(row) => {
            let position = [BinaryOp::URem, BinaryOp::UDiv]
                .map(|op| b.binary(op, "", &Type::I32, row.clone(), size_y.clone()).into());
            (times(b, row, per_row), position, per_row.clone())
        }
    };
    let before = b.at;
    b.br(body);
    let mut counter =
        |name: &str, first: &Operand| Counter::new(b.f, body, name, Type::I32, (first.clone(), before));
    let [step, x] = ["step", "x"].map(|name| counter(name, &zero()));
    let rows = row.is_none().then(|| [counter("y", &position[0]), counter("z", &position[1])]);
    let add =
        |b: &mut Builder<'_>, a: ValueId, n: Operand| b.binary(BinaryOp::Add, "nuw nsw", &Type::I32, a, n);
    b.at = next;
    let first_x = x.value;
    let next_x = add(b, x.value, i32_const(layout.lanes).into());
    let position = match rows {
        None => {
            x.end(b.f, next_x, next);
            position
        }
        Some([y, z]) => {
            let values = [y.value.into(), z.value.into()];
            let in_row = b.icmp(IntPredicate::Ult, &Type::I32, next_x, size_x.clone());
            let next_x = b.select(&Type::I32, in_row, next_x, i32_const(0));
            let next_y = add(b, y.value, i32_const(1).into());
            let next_y = b.select(&Type::I32, in_row, y.value, next_y);
            let in_plane = b.icmp(IntPredicate::Ult, &Type::I32, next_y, size_y.clone());
            let next_y = b.select(&Type::I32, in_plane, next_y, i32_const(0));
            let next_z = add(b, z.value, i32_const(1).into());
            let next_z = b.select(&Type::I32, in_plane, z.value, next_z);
            for (counter, value) in [(x, next_x), (y, next_y), (z, next_z)] {
                counter.end(b.f, value, next);
            }
            values
        }
    };
    let in_row = again(b, step, count, last, done);
    let iteration = match row {
        None => in_row,
        Some(_) => add(b, in_row, first),
    };
    let wide = b.cast(CastOp::ZExt, Type::I32, iteration, Type::I64).into();
    let [y, z] = position;
    let place = Place::Thread([first_x.into(), y, z]);
    Iterations { iteration: iteration.into(), wide, place, body, next, done }
}

/// Positions of an iteration's threads in their threadgroup.
pub(crate) struct Positions {
    /// Per dimension; in the forms of [`Layout::thread`].
    pub thread: [Forms; 3],
}

/// Emits the positions of an iteration's threads.
pub(crate) fn positions(emit: &mut Emit<'_, '_>, iterations: &Iterations) -> Positions {
    let layout = emit.source.layout;
    if let Place::Thread(position) = &iterations.place {
        let one = |value: &Operand| Forms { scalars: vec![value.clone()], vectors: Vec::new() };
        return Positions { thread: position.each_ref().map(one) };
    }
    match layout.per_row {
        Some(per_row) => in_rows(emit, iterations, per_row),
        None => across_rows(emit, &iterations.iteration),
    }
}

/// `a op n`, omitted for the identity.
fn by(b: &mut Builder<'_>, op: BinaryOp, a: &Operand, n: u32) -> Operand {
    let zero: Operand = i32_const(0).into();
    match (op, n) {
        (BinaryOp::Mul | BinaryOp::UDiv, 1) | (BinaryOp::Add, 0) => a.clone(),
        (BinaryOp::URem, 1) => zero,
        _ if *a == zero && op != BinaryOp::Add => zero,
        _ if *a == zero => i32_const(n).into(),
        _ => {
            let flags = if matches!(op, BinaryOp::Add | BinaryOp::Mul) { "nuw nsw" } else { "" };
            b.binary(op, flags, &Type::I32, a.clone(), i32_const(n)).into()
        }
    }
}

fn in_rows(emit: &mut Emit<'_, '_>, iterations: &Iterations, per_row: u32) -> Positions {
    let layout = emit.source.layout;
    let ([_, y, z], factor) = (layout.group, layout.factor);
    let mut thread = [(); 3].map(|()| Forms::default());
    let b = &mut emit.b;
    let iterations_per_row = (per_row / factor).max(1);
    let (row_of_iteration, iteration_of_row) = match &iterations.place {
        Place::Row(row, in_row) => (row.clone(), in_row.clone()),
        _ => [BinaryOp::UDiv, BinaryOp::URem]
            .map(|op| by(b, op, &iterations.iteration, iterations_per_row))
            .into(),
    };
    for part in 0..factor {
        let (column, row) = if per_row.is_multiple_of(factor) {
            let column = by(b, BinaryOp::Mul, &iteration_of_row, factor);
            (by(b, BinaryOp::Add, &column, part), row_of_iteration.clone())
        } else {
            // An iteration has whole rows.
            let row = by(b, BinaryOp::Mul, &row_of_iteration, factor / per_row);
            (i32_const(part % per_row).into(), by(b, BinaryOp::Add, &row, part / per_row))
        };
        let inside = if z == 1 { row.clone() } else { by(b, BinaryOp::URem, &row, y) };
        let plane = if z == 1 { i32_const(0).into() } else { by(b, BinaryOp::UDiv, &row, y) };
        let first = by(b, BinaryOp::Mul, &column, layout.lanes);
        let inside = if y == 1 { i32_const(0).into() } else { inside };
        for (forms, position) in thread.iter_mut().zip([first, inside, plane]) {
            forms.scalars.push(position);
        }
    }
    Positions { thread }
}

/// From the threads' linear index, for a single part.
fn across_rows(emit: &mut Emit<'_, '_>, iteration: &Operand) -> Positions {
    let layout = emit.source.layout;
    let [x, y, z] = layout.group;
    let first = by(&mut emit.b, BinaryOp::Mul, iteration, layout.lanes);
    let thread = [0, 1, 2].map(|dim| {
        let (divisor, modulus) = match dim {
            0 => (1, Some(x)),
            1 => (x, (z > 1).then_some(y)),
            _ => (x * y, None),
        };
        if layout.thread(dim).pattern().is_some() {
            let mut at = by(&mut emit.b, BinaryOp::UDiv, &first, divisor);
            if let Some(modulus) = modulus {
                at = by(&mut emit.b, BinaryOp::URem, &at, modulus);
            }
            let at = if layout.thread(dim).constant.is_some() { i32_const(0).into() } else { at };
            return Forms { scalars: vec![at], vectors: Vec::new() };
        }
        let wide = emit.wide(&Type::I32);
        let all = emit.splat(first.clone(), &Type::I32);
        let numbers = emit.lane_numbers();
        let mut at: Operand = emit.b.binary(BinaryOp::Add, "", &wide, all, numbers).into();
        for (op, n) in [(BinaryOp::UDiv, Some(divisor)), (BinaryOp::URem, modulus)] {
            if let Some(n) = n.filter(|n| *n > 1 || op == BinaryOp::URem) {
                let n = emit.splat_const(&Type::I32, &i32_const(n));
                at = emit.b.binary(op, "", &wide, at, n).into();
            }
        }
        Forms { scalars: Vec::new(), vectors: vec![at] }
    });
    Positions { thread }
}

/// For each part, the mask of lanes whose threads exist in a threadgroup of this size. `positions` are the values of
/// the threads' positions.
pub(crate) fn existing(emit: &mut Emit<'_, '_>, positions: &Positions, size: &[Operand; 3]) -> Vec<Operand> {
    let layout = emit.source.layout;
    let (wide, ty) = (emit.wide(&Type::I32), emit.mask_type());
    let mut masks = Vec::new();
    for part in 0..emit.factor() {
        let mut mask = emit.mask_of(true);
        for (dim, limit) in size.iter().enumerate() {
            let known = layout.thread(dim);
            if known.constant.is_some() {
                continue;
            }
            let vector = match known.pattern() {
                Some(pattern) => {
                    let scalar = positions.thread[dim].scalars[part].clone();
                    emit.spread(scalar, &Type::I32, pattern)
                }
                None => positions.thread[dim].vectors[part].clone(),
            };
            let limit = emit.splat(limit.clone(), &Type::I32);
            let op = Op::ICmp {
                flags: String::new(),
                pred: IntPredicate::Ult,
                ty: wide.clone(),
                a: vector,
                b: limit,
            };
            let inside = emit.b.value(ty.clone(), None, op);
            mask = emit.b.binary(BinaryOp::And, "", &ty, mask, inside).into();
        }
        masks.push(mask);
    }
    masks
}

/// Masks in memory: a u32 for each vector.
pub(crate) struct ExitedLanes {
    pub base: ValueId,
}

impl ExitedLanes {
    fn place(&self, emit: &mut Emit<'_, '_>, iteration: &Operand, part: usize) -> Operand {
        let factor = emit.factor() as u32;
        let first = by(&mut emit.b, BinaryOp::Mul, iteration, factor);
        let index = by(&mut emit.b, BinaryOp::Add, &first, part as u32);
        let index = emit.b.cast(CastOp::ZExt, Type::I32, index, Type::I64);
        emit.b.gep(Type::I32, self.base, index).into()
    }

    pub fn load(&self, emit: &mut Emit<'_, '_>, iteration: &Operand, part: usize) -> Operand {
        let place = self.place(emit, iteration, part);
        let bits = Operand::from(emit.b.load(Type::I32, place, None));
        let narrow = Type::Int(emit.lanes());
        let bits = match emit.lanes() {
            32 => bits,
            _ => emit.b.cast(CastOp::Trunc, Type::I32, bits, narrow.clone()).into(),
        };
        let ty = emit.mask_type();
        emit.b.cast(CastOp::BitCast, narrow, bits, ty).into()
    }

    pub fn store(&self, emit: &mut Emit<'_, '_>, iteration: &Operand, part: usize, mask: Operand) {
        let place = self.place(emit, iteration, part);
        let bits = emit.bits(mask);
        let bits = emit.resize(bits, emit.lanes());
        emit.b.store(Type::I32, bits, place);
    }

    /// Adds lanes to a mask.
    pub fn add(&self, emit: &mut Emit<'_, '_>, iteration: &Operand, part: usize, mask: Operand) {
        let before = self.load(emit, iteration, part);
        let ty = emit.mask_type();
        let both = emit.b.binary(BinaryOp::Or, "", &ty, before, mask).into();
        self.store(emit, iteration, part, both);
    }

    pub fn clear(&self, emit: &mut Emit<'_, '_>, iteration: &Operand, part: usize) {
        self.store(emit, iteration, part, Const::Zero.into());
    }
}
