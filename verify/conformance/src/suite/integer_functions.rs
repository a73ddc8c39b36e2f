//! `<metal_integer>`: each function on every integer type, scalar and vector, over all triples of edge values, compared with 128-bit
//! arithmetic.

use super::sheet::{Sheet, Value, sheets};

sheets!("integer_functions": on_char, on_uchar, on_short, on_ushort, on_int, on_uint, on_long, on_ulong, multiply_24,
    bit_fields);

/// An integer type of MSL, with conversions on the host.
trait Integer: Value + bytemuck::Pod + std::fmt::Debug {
    const BITS: u32;
    const SIGNED: bool;
    fn wide(self) -> i128;
    fn wrap(v: i128) -> Self;

    fn least() -> i128 {
        if Self::SIGNED { -(1 << (Self::BITS - 1)) } else { 0 }
    }
    fn most() -> i128 {
        if Self::SIGNED { (1 << (Self::BITS - 1)) - 1 } else { (1 << Self::BITS) - 1 }
    }
    /// The bits as an unsigned number.
    fn pattern(self) -> u128 {
        self.wide() as u128 & ((1 << Self::BITS) - 1)
    }
    fn clamped(v: i128) -> Self {
        Self::wrap(v.clamp(Self::least(), Self::most()))
    }
    fn edges() -> Vec<Self> {
        let mut all: Vec<i128> =
            vec![0, 1, 2, 7, Self::most(), Self::most() - 1, Self::least(), Self::least() + 1];
        all.extend([Self::most() / 2 + 1, Self::most() / 3, 0x5a % (Self::most() + 1)]);
        if Self::SIGNED {
            all.extend([-1, -2, Self::least() / 2]);
        }
        all.into_iter().map(Self::wrap).collect()
    }
}

macro_rules! integers {
    ($($host:ty),*) => {$(
        impl Integer for $host {
            const BITS: u32 = <$host>::BITS;
            const SIGNED: bool = <$host>::MIN != 0;
            fn wide(self) -> i128 {
                i128::from(self)
            }
            fn wrap(v: i128) -> Self {
                v as $host
            }
        }
    )*};
}
integers!(i8, u8, i16, u16, i32, u32, i64, u64);

type Unary<T> = (&'static str, fn(T) -> T);
type Binary<T> = (&'static str, fn(T, T) -> T);
type Ternary<T> = (&'static str, fn(T, T, T) -> T);

fn unary<T: Integer>() -> Vec<Unary<T>> {
    vec![
        ("popcount", |a| T::wrap(i128::from(a.pattern().count_ones()))),
        ("clz", |a| T::wrap(i128::from(a.pattern().leading_zeros()) - 128 + i128::from(T::BITS))),
        ("ctz", |a| T::wrap(i128::from(a.pattern().trailing_zeros().min(T::BITS)))),
        ("reverse_bits", |a| T::wrap((a.pattern().reverse_bits() >> (128 - T::BITS)) as i128)),
        ("abs", |a| T::wrap(a.wide().abs())),
    ]
}

fn binary<T: Integer>() -> Vec<Binary<T>> {
    vec![
        ("addsat", |a, b| T::clamped(a.wide() + b.wide())),
        ("subsat", |a, b| T::clamped(a.wide() - b.wide())),
        ("hadd", |a, b| T::wrap((a.wide() + b.wide()) >> 1)),
        ("rhadd", |a, b| T::wrap((a.wide() + b.wide() + 1) >> 1)),
        ("mulhi", |a, b| T::wrap(high(a, b))),
        ("max", |a, b| T::wrap(a.wide().max(b.wide()))),
        ("min", |a, b| T::wrap(a.wide().min(b.wide()))),
        ("rotate", |a, b| {
            let (bits, by) = (a.pattern(), (b.pattern() % u128::from(T::BITS)) as u32);
            T::wrap((bits << by | bits >> (T::BITS - by)) as i128)
        }),
    ]
}

/// The upper half of the double-width product, which for `ulong` needs all bits of u128.
fn high<T: Integer>(a: T, b: T) -> i128 {
    if T::SIGNED {
        (a.wide() * b.wide()) >> T::BITS
    } else {
        ((a.wide() as u128 * b.wide() as u128) >> T::BITS) as i128
    }
}

fn ternary<T: Integer>() -> Vec<Ternary<T>> {
    vec![
        ("madhi", |a, b, c| T::wrap(high(a, b) + c.wide())),
        ("madsat", |a, b, c| {
            let product = a.wide().checked_mul(b.wide()).and_then(|p| p.checked_add(c.wide()));
            T::clamped(product.unwrap_or(i128::MAX))
        }),
        ("max3", |a, b, c| T::wrap(a.wide().max(b.wide()).max(c.wide()))),
        ("min3", |a, b, c| T::wrap(a.wide().min(b.wide()).min(c.wide()))),
        ("median3", |a, b, c| {
            let mut all = [a.wide(), b.wide(), c.wide()];
            all.sort_unstable();
            T::wrap(all[1])
        }),
        // With ordered bounds; MSL leaves the others undefined.
        ("ordered_clamp", |a, b, c| T::wrap(a.wide().clamp(b.wide().min(c.wide()), b.wide().max(c.wide())))),
    ]
}

fn family<T: Integer, U: Value>(name: &'static str, unsigned: fn(i128) -> U) -> Sheet {
    let edges = T::edges();
    let mut rows = Vec::new();
    for a in &edges {
        for b in &edges {
            rows.extend(edges.iter().map(|c| (*a, *b, *c)));
        }
    }
    let column = |k: fn(&(T, T, T)) -> T| rows.iter().map(k).collect::<Vec<T>>();
    let (a, b, c) = (column(|r| r.0), column(|r| r.1), column(|r| r.2));
    let ty = T::msl();
    let mut sheet = Sheet::new(name)
        .declare("template <typename T> METAL_FUNC T ordered_clamp(T a, T b, T c) { return clamp(a, min(b, c), max(b, c)); }")
        .column("a", &a)
        .column("b", &b)
        .column("c", &c);
    for (f, reference) in unary::<T>() {
        let row = rows.clone();
        sheet = sheet.line(&format!("{f}(a)"), move |i| reference(row[i].0));
        let row = rows.clone();
        sheet = sheet.line(&format!("{f}({ty}3(b, a, c))"), move |i| {
            let (a, b, c) = row[i];
            [reference(b), reference(a), reference(c)]
        });
    }
    for (f, reference) in binary::<T>() {
        let row = rows.clone();
        sheet = sheet.line(&format!("{f}(a, b)"), move |i| reference(row[i].0, row[i].1));
        let row = rows.clone();
        sheet = sheet.line(&format!("{f}({ty}2(c, a), {ty}2(a, b))"), move |i| {
            let (a, b, c) = row[i];
            [reference(c, a), reference(a, b)]
        });
    }
    for (f, reference) in ternary::<T>() {
        let row = rows.clone();
        sheet = sheet.line(&format!("{f}(a, b, c)"), move |i| reference(row[i].0, row[i].1, row[i].2));
        let row = rows.clone();
        sheet =
            sheet.line(&format!("{f}({ty}4(a, b, c, a), {ty}4(b, c, a, a), {ty}4(c, a, b, b))"), move |i| {
                let (a, b, c) = row[i];
                [reference(a, b, c), reference(b, c, a), reference(c, a, b), reference(a, a, b)]
            });
    }
    let row = rows.clone();
    sheet = sheet.line("absdiff(a, b)", move |i| unsigned((row[i].0.wide() - row[i].1.wide()).abs()));
    sheet.line(&format!("absdiff({ty}2(a, b), {ty}2(b, c))"), move |i| {
        let (a, b, c) = rows[i];
        [unsigned((a.wide() - b.wide()).abs()), unsigned((b.wide() - c.wide()).abs())]
    })
}

fn on_char() -> Sheet {
    family::<i8, u8>("on_char", u8::wrap)
}
fn on_uchar() -> Sheet {
    family::<u8, u8>("on_uchar", u8::wrap)
}
fn on_short() -> Sheet {
    family::<i16, u16>("on_short", u16::wrap)
}
fn on_ushort() -> Sheet {
    family::<u16, u16>("on_ushort", u16::wrap)
}
fn on_int() -> Sheet {
    family::<i32, u32>("on_int", u32::wrap)
}
fn on_uint() -> Sheet {
    family::<u32, u32>("on_uint", u32::wrap)
}
fn on_long() -> Sheet {
    family::<i64, u64>("on_long", u64::wrap)
}
fn on_ulong() -> Sheet {
    family::<u64, u64>("on_ulong", u64::wrap)
}

/// `mul24` and `mad24`: the low 24 bits of each factor, sign-extended for `int`.
fn multiply_24() -> Sheet {
    let signed: Vec<i32> = vec![0, 1, -1, 3, -4099, 0x7f_ffff, -0x80_0000, 123_456];
    let (a, b) = super::sheet::pairs(&signed, &signed);
    let unsigned = |v: &Vec<i32>| v.iter().map(|v| *v as u32 & 0xff_ffff).collect::<Vec<u32>>();
    let (ua, ub) = (unsigned(&a), unsigned(&b));
    let sheet = Sheet::new("multiply_24").column("a", &a).column("b", &b).column("ua", &ua).column("ub", &ub);
    let product = move |i: usize| a[i].wrapping_mul(b[i]);
    let unsigned_product = move |i: usize| ua[i].wrapping_mul(ub[i]);
    let (p2, p3, u2, u3) =
        (product.clone(), product.clone(), unsigned_product.clone(), unsigned_product.clone());
    sheet
        .line("mul24(a, b)", product)
        .line("mul24(ua, ub)", unsigned_product)
        .line("mad24(a, b, 77)", move |i| p2(i).wrapping_add(77))
        .line("mad24(ua, ub, 77u)", move |i| u2(i).wrapping_add(77))
        .line("mul24(int2(a, b), int2(b, a))", move |i| [p3(i); 2])
        .line("mad24(uint3(ua), uint3(ub), uint3(1u))", move |i| [u3(i).wrapping_add(1); 3])
}

/// `extract_bits` and `insert_bits` for every offset and count within the width.
fn bit_fields() -> Sheet {
    let mut rows: Vec<(u32, u32)> = Vec::new();
    for offset in 0..=32 {
        rows.extend((0..=32 - offset).map(|count| (offset, count)));
    }
    let offsets: Vec<u32> = rows.iter().map(|r| r.0).collect();
    let counts: Vec<u32> = rows.iter().map(|r| r.1).collect();
    let values: Vec<u32> =
        (0..rows.len() as u32).map(|i| i.wrapping_mul(0x9e37_79b9) ^ 0x8000_0001).collect();
    let sheet = Sheet::new("bits").column("at", &offsets).column("n", &counts).column("v", &values);
    let field = |v: u64, at: u32, n: u32| (u128::from(v) >> at) & ((1 << n) - 1);
    let signed = move |v: u64, at: u32, n: u32| {
        let f = field(v, at, n) as i128;
        if n > 0 && f >> (n - 1) & 1 == 1 { f - (1 << n) } else { f }
    };
    let insert = |base: u32, v: u32, at: u32, n: u32| {
        let mask = ((1_u64 << n) - 1) << at;
        (u64::from(base) & !mask | (u64::from(v) << at) & mask) as u32
    };
    let all = std::rc::Rc::new((rows, values));
    let row = move || {
        let all = all.clone();
        move |i: usize| (all.1[i], all.0[i].0, all.0[i].1)
    };
    let (r1, r2, r3, r4, r5, r6) = (row(), row(), row(), row(), row(), row());
    sheet
        .line("extract_bits(v, at, n)", move |i| {
            let (v, at, n) = r1(i);
            field(u64::from(v), at, n) as u32
        })
        .line("extract_bits(int(v), at, n)", move |i| {
            let (v, at, n) = r2(i);
            signed(u64::from(v), at, n) as i32
        })
        .line("extract_bits(ulong(v) * 0x100000001ul, at, n)", move |i| {
            let (v, at, n) = r3(i);
            field(u64::from(v) * 0x1_0000_0001, at, n) as u64
        })
        .line("extract_bits(short2(short(v), short(v >> 16)), at / 2u, n / 2u)", move |i| {
            let (v, at, n) = r4(i);
            [v as u16, (v >> 16) as u16].map(|v| signed(u64::from(v), at / 2, n / 2) as i16)
        })
        .line("insert_bits(v, ~v * 3u, at, n)", move |i| {
            let (v, at, n) = r5(i);
            insert(v, (!v).wrapping_mul(3), at, n)
        })
        .line("insert_bits(int2(int(v), 0), int2(-1, int(v)), at, n)", move |i| {
            let (v, at, n) = r6(i);
            [insert(v, u32::MAX, at, n) as i32, insert(0, v, at, n) as i32]
        })
}
