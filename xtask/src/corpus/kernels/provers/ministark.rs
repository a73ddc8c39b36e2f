//! Kernels of STARK provers over a field of 64 bits, its cubic extension, and one of 252 bits: arithmetic, and Fourier transforms.

use elinvar::Constants;

use super::field::{Field, Number, ONE, Value, reversed};
use crate::corpus::kernels::case::{Case, guarded};

const MINISTARK: (&str, &str) = ("ministark-gpu", "shaders.metal");
const LAMBDAWORKS: (&str, &str) = ("lambdaworks-math", "all.metal");

/// Number of elements; a power of two, because it is the size of transforms as well.
const COUNT: usize = 16;
const BITS: u32 = 4;

/// 2⁶⁴ - 2³² + 1.
const SHORT: Number = [0xffff_ffff_0000_0001, 0, 0, 0];
/// 2²⁵¹ + 17·2¹⁹² + 1.
const LONG: Number = [1, 0, 0, 0x0800_0000_0000_0011];
/// Numbers that are no squares modulo these.
const GENERATORS: [u64; 2] = [7, 3];

struct Named {
    field: Field,
    name: &'static str,
    generator: u64,
}

fn fields() -> [Named; 3] {
    let short = Field::prime(SHORT, 64);
    [
        Named { field: Field::prime(SHORT, 64), name: "p18446744069414584321_fp", generator: GENERATORS[0] },
        Named {
            field: Field { degree: 3, residue: 2, ..short },
            name: "p18446744069414584321_fq3",
            generator: GENERATORS[0],
        },
        Named {
            field: Field::prime(LONG, 256),
            name: "p3618502788666131213697322783095070105623107215331596699973092056135872020481_fp",
            generator: GENERATORS[1],
        },
    ]
}

pub fn cases() -> Vec<Case> {
    let fields = fields();
    let mut cases = Vec::new();
    for (left, right) in [(0, 0), (1, 1), (1, 0), (2, 2)] {
        cases.extend(binary(&fields[left], &fields[right]));
    }
    for field in &fields {
        cases.extend(unary(field));
        cases.extend(transforms(field));
    }
    cases.extend([conversion(&fields[0], &fields[0]), conversion(&fields[1], &fields[0])]);
    cases.push(conversion(&fields[2], &fields[2]));
    cases.push(twiddles(&fields[0]));
    cases.extend(lambdaworks(&fields[2].field));
    cases
}

/// A case of ministark, whose transforms have the sizes as function constants.
fn case(kernel: String, boxes: u32) -> Case {
    let constants = Constants::new().set(0, COUNT as u32).set(1, boxes).set(2, COUNT as u32);
    Case::new(MINISTARK.0, MINISTARK.1, kernel).constants(constants).threads(COUNT, COUNT)
}

fn some<T: Copy>(words: Vec<T>) -> Vec<Option<T>> {
    words.into_iter().map(Some).collect()
}

/// `x[i] op y[i + shift]`, in place and not, with a constant as well, and `x[i] · y[i + shift]ᵉ`.
fn binary(left: &Named, right: &Named) -> Vec<Case> {
    let field = &left.field;
    let (shift, exponent) = (5, 11_u32);
    let (x, y) = (field.samples(COUNT, 11), right.field.samples(COUNT, 13));
    let names = format!("LHS_{}_RHS_{}", left.name, right.name);
    let (before, other) = (field.words(&x), right.field.words(&y));
    let shifted = |i: usize| &y[(i + shift) % COUNT];
    let shift = shift as u32;
    let mut cases = Vec::new();
    type Operation = fn(&Field, &Value, &Value) -> Value;
    let operations: [(&str, Operation); 2] = [("add", Field::add), ("mul", Field::multiply)];
    for (name, operation) in operations {
        let all = |second: &dyn Fn(usize) -> Value| {
            let values: Vec<Value> = (0..COUNT).map(|i| operation(field, &x[i], &second(i))).collect();
            field.words(&values)
        };
        let (sums, with_constant) = (all(&|i| shifted(i).clone()), all(&|_| y[7].clone()));
        let constant = right.field.words(&y[7..8]);
        cases.push(
            case(format!("{name}_assign_{names}"), 1)
                .updated(&guarded(&before), &some(sums.clone()))
                .input(&other)
                .value([shift]),
        );
        cases.push(
            case(format!("{name}_into_{names}"), 1)
                .full_output(sums)
                .input(&before)
                .input(&other)
                .value([shift]),
        );
        cases.push(
            case(format!("{name}_assign_const_{names}"), 1)
                .updated(&guarded(&before), &some(with_constant.clone()))
                .input(&constant),
        );
        cases.push(
            case(format!("{name}_into_const_{names}"), 1)
                .full_output(with_constant)
                .input(&before)
                .input(&constant),
        );
    }
    let powers: Vec<Value> = (0..COUNT)
        .map(|i| field.multiply(&x[i], &right.field.power(shifted(i), &[exponent.into(), 0, 0, 0])))
        .collect();
    cases.push(
        case(format!("mul_pow_{names}"), 1)
            .updated(&guarded(&before), &some(field.words(&powers)))
            .input(&other)
            .value([exponent])
            .value([shift]),
    );
    cases
}

/// Negation, powers, inverses in the prime fields, and a fill.
fn unary(named: &Named) -> Vec<Case> {
    let Named { field, name, .. } = named;
    let x = field.samples(COUNT, 17);
    let before = field.words(&x);
    let map = |function: &dyn Fn(&Value) -> Value| {
        let values: Vec<Value> = x.iter().map(function).collect();
        field.words(&values)
    };
    let mut cases = Vec::new();
    let mut both = |kernel: &str, want: Vec<u64>, exponent: Option<u32>| {
        let in_place =
            case(format!("{kernel}_in_place_{name}"), 1).updated(&guarded(&before), &some(want.clone()));
        let into = case(format!("{kernel}_into_{name}"), 1).full_output(want).input(&before);
        cases.extend([in_place, into].map(|case| match exponent {
            Some(exponent) => case.value([exponent]),
            None => case,
        }));
    };
    both("neg", map(&|x| field.negate(x)), None);
    both("exp", map(&|x| field.power(x, &[29, 0, 0, 0])), Some(29));
    if field.degree == 1 {
        both("inverse", map(&|x| field.inverse(x)), None);
    }
    let value = field.words(&x[9..10]);
    cases.push(case(format!("fill_buff_{name}"), 1).full_output(value.repeat(COUNT)).input(&value));
    cases
}

/// Elements of the right field as elements of the left.
fn conversion(left: &Named, right: &Named) -> Case {
    let x = right.field.samples(COUNT, 19);
    let want: Vec<Value> = x.iter().map(|x| left.field.add(&left.field.constant([0; 4]), x)).collect();
    case(format!("convert_into_LHS_{}_RHS_{}", left.name, right.name), 1)
        .full_output(left.field.words(&want))
        .input(&right.field.words(&x))
}

/// Powers of a root of unity, of half the order of the transform, in bit-reversed order.
fn reversed_powers(field: &Field, root: &Value, count: usize) -> Vec<Value> {
    let bits = count.trailing_zeros();
    (0..count).map(|i| field.power(root, &[reversed(i, bits) as u64, 0, 0, 0])).collect()
}

/// The transform by its definition, outputs in bit-reversed order.
fn transform(field: &Field, x: &[Value], root: &Value) -> Vec<Value> {
    let bits = x.len().trailing_zeros();
    let powers: Vec<Value> = (0..x.len())
        .scan(vec![ONE], |power, _| {
            Some(std::mem::replace(power, vec![field.multiply_numbers(&power[0], &root[0])]))
        })
        .collect();
    (0..x.len())
        .map(|i| {
            let step = reversed(i, bits);
            x.iter().enumerate().fold(field.constant([0; 4]), |sum, (j, value)| {
                field.add(&sum, &field.multiply(value, &powers[step * j % x.len()]))
            })
        })
        .collect()
}

fn transforms(named: &Named) -> Vec<Case> {
    let Named { field, name, generator } = named;
    let base = Field::prime(field.modulus, field.bits);
    let root = base.root(*generator, BITS);
    let twiddles = reversed_powers(&base, &root, COUNT / 2);
    let x = field.samples(COUNT, 23);
    let before = guarded(&field.words(&x));
    let words = |values: &[Value]| some(field.words(values));
    // One stage, in four boxes of eight elements.
    let (boxes, size) = (4, COUNT / 4);
    let mut stage = x.clone();
    for (b, twiddle) in twiddles.iter().enumerate().take(boxes) {
        for k in 0..size / 2 {
            let (low, high) = (b * size + k, b * size + k + size / 2);
            let product = field.multiply(&x[high], twiddle);
            stage[low] = field.add(&x[low], &product);
            stage[high] = field.subtract(&x[low], &product);
        }
    }
    let order: Vec<Value> = (0..COUNT).map(|i| x[reversed(i, BITS)].clone()).collect();
    let whole = transform(field, &x, &root);
    vec![
        case(format!("fft_single_{name}"), boxes as u32)
            .updated(&before, &words(&stage))
            .input(&base.words(&twiddles))
            .threads(COUNT / 2, COUNT / 2),
        case(format!("bit_reverse_{name}"), 1).updated(&before, &words(&order)),
        case(format!("fft_multiple_{name}"), 1)
            .updated(&before, &words(&whole))
            .input(&base.words(&twiddles))
            .threadgroup(8 * field.words(&x).len())
            .threads(COUNT / 2, COUNT / 2),
    ]
}

fn twiddles(named: &Named) -> Case {
    let root = named.field.root(named.generator, BITS);
    case(format!("generate_twiddles_{}", named.name), 1)
        .full_output(named.field.words(&reversed_powers(&named.field, &root, COUNT)))
        .input(&named.field.words(&[root]))
}

/// The same field in another prover, which stores the most significant word first.
fn lambdaworks(field: &Field) -> Vec<Case> {
    let words = |values: &[Value]| -> Vec<u64> {
        field
            .words(values)
            .chunks(4)
            .flat_map(|number| number.iter().rev().copied().collect::<Vec<_>>())
            .collect()
    };
    let case = |kernel: &str| {
        Case::new(LAMBDAWORKS.0, LAMBDAWORKS.1, format!("{kernel}_stark256")).threads(COUNT, COUNT / 2)
    };
    let root = field.root(GENERATORS[1], BITS);
    let powers: Vec<Value> = (0..COUNT).map(|i| field.power(&root, &[i as u64, 0, 0, 0])).collect();
    let inverses: Vec<Value> = powers.iter().map(|power| field.inverse(power)).collect();
    let permuted =
        |values: &[Value]| -> Vec<Value> { (0..COUNT).map(|i| values[reversed(i, BITS)].clone()).collect() };
    let x = field.samples(COUNT, 29);
    // Stage 2: four groups.
    let (groups, twiddles) = (4, reversed_powers(field, &root, COUNT / 2));
    let half = COUNT / 2 / groups;
    let mut stage = x.clone();
    for (group, twiddle) in twiddles.iter().enumerate().take(groups) {
        for k in 0..half {
            let low = group * 2 * half + k;
            let product = field.multiply(twiddle, &x[low + half]);
            stage[low] = field.add(&x[low], &product);
            stage[low + half] = field.subtract(&x[low], &product);
        }
    }
    let omega = words(&[root]);
    vec![
        case("calc_twiddles").full_output(words(&powers)).input(&omega),
        case("calc_twiddles_inv").full_output(words(&inverses)).input(&omega),
        case("calc_twiddles_bitrev").full_output(words(&permuted(&powers))).input(&omega),
        case("calc_twiddles_bitrev_inv").full_output(words(&permuted(&inverses))).input(&omega),
        case("bitrev_permutation").input(&words(&x)).full_output(words(&permuted(&x))),
        case("radix2_dit_butterfly")
            .updated(&guarded(&words(&x)), &some(words(&stage)))
            .input(&words(&twiddles))
            .value([2_u32])
            .threads(COUNT / 2, COUNT / 4),
    ]
}
