//! Simdgroup and quadgroup functions: every function on every type, with all and with some lanes active; with constant, uniform and
//! varying lane indices; in threadgroups of many shapes; in loops with divergent exits. Expected results follow from the MSL
//! specification per lane; a value read from an inactive lane is undefined and not compared.

use elinvar::{Arg, Device, bf16, f16};

use super::CaseResult;
use super::lanes::{Fold, Number, Peers, Shape, UNWRITTEN, Words, differences};
use super::sheet::Word;

cases!("simdgroups": of_int, of_uint, of_short, of_ushort, of_char, of_uchar, of_long, of_ulong, of_half, of_bfloat,
    of_float, of_int2, of_half4, of_bfloat3, of_float3, of_uchar2, shapes, divergent_loop, votes);

/// View of a thread on its simdgroup or quadgroup: the threads in the active lanes.
struct Seen<'a> {
    lane: usize,
    peers: &'a Peers,
    /// Component of a vector.
    component: usize,
}

impl Seen<'_> {
    fn width(&self) -> usize {
        self.peers.len()
    }

    /// Value of the thread in a lane, if the lane is active.
    fn from<T>(&self, lane: usize, value: impl Fn(usize) -> T) -> Option<T> {
        self.peers[lane].map(|t| value(t + self.component))
    }

    fn fold<T: Number>(&self, fold: Fold, lanes: usize, value: fn(usize) -> T) -> Option<T> {
        (0..lanes).filter_map(|l| self.from(l, value)).reduce(|a, b| T::fold(fold, a, b))
    }
}

/// Result of a thread; `None` if it is undefined.
type Gives<T> = Box<dyn Fn(&Seen) -> Option<T>>;

/// Text of a number, and its value for a thread and a group width.
type Given = (String, fn(usize, usize) -> usize);

/// A function, its argument, and the values that it folds.
type Folded<T> = (&'static str, &'static str, Fold, fn(usize) -> T);

/// An expression, and its result for a thread with this view; `None` if it is undefined.
struct Line<T> {
    text: String,
    gives: Gives<T>,
}

/// Lane index or distance passed to the kernels that is the same for all threads; below, that of each thread.
const GIVEN: usize = 6;
fn given(t: usize) -> usize {
    t * 11 % 37
}

/// Texts of lane indices and distances, and their values for a thread.
fn numbers(width: usize, varying: bool) -> Vec<Given> {
    let mut all: Vec<Given> = vec![("1".into(), |_, _| 1)];
    match width {
        4 => {
            all.push(("3".into(), |_, _| 3));
            all.push(("k - 4".into(), |_, _| GIVEN - 4));
        }
        _ => {
            all.push(("0".into(), |_, _| 0));
            all.push(("31".into(), |_, _| 31));
            all.push(("k".into(), |_, _| GIVEN));
            all.push(("2 * k".into(), |_, _| 2 * GIVEN));
        }
    }
    if varying {
        let own = if width == 4 { "own & 3" } else { "own & 31" };
        all.push((own.into(), |t, width| given(t) % width));
        all.push((format!("(i * 3 + 2) & {}", width - 1), |t, width| (t * 3 + 2) % width));
    }
    all
}

/// Shuffles of `u`, also with fill values from `f`. A thread's value is `own(t)`, its fill value `own(t + 7)`.
fn shuffles<T: Number>(group: &str, width: usize) -> Vec<Line<T>> {
    let mut lines: Vec<Line<T>> = Vec::new();
    let mut add = |name: &str, varying: bool, from: fn(usize, usize, usize) -> Option<usize>| {
        for (text, number) in numbers(width, varying) {
            let gives = move |seen: &Seen| {
                let me = seen.peers[seen.lane]?;
                let number = number(me, seen.width());
                match from(seen.lane, number, seen.width()) {
                    Some(lane) => seen.from(lane, T::own),
                    None => seen.from(seen.lane, T::own),
                }
            };
            lines.push(Line { text: format!("{group}_{name}(u, ushort({text}))"), gives: Box::new(gives) });
        }
    };
    add("broadcast", false, |_, n, width| Some(n % width));
    add("shuffle", true, |_, n, width| Some(n % width));
    add("shuffle_xor", true, |lane, n, width| Some((lane ^ n) % width));
    add("shuffle_up", true, |lane, n, _| lane.checked_sub(n));
    add("shuffle_down", true, |lane, n, width| Some(lane + n).filter(|l| *l < width));
    add("shuffle_rotate_up", true, |lane, n, width| Some((lane + width - n) % width));
    add("shuffle_rotate_down", true, |lane, n, width| Some((lane + n) % width));
    lines.push(Line {
        text: format!("{group}_broadcast_first(u)"),
        gives: Box::new(|seen| (0..seen.width()).find_map(|lane| seen.from(lane, T::own))),
    });
    for up in [true, false] {
        for (distance, segment, text) in [
            (1, width, "1".to_owned()),
            (2, width, "k - 4".to_owned()),
            (1, 2, "1, 2".to_owned()),
            (3, width, format!("3, {width}")),
            (2, 4, "k - 4, 4".to_owned()),
            (width / 4, width / 2, format!("{}, {}", width / 4, width / 2)),
            (1, width / 2, format!("one, {} * one", width / 2)),
        ] {
            let name = if up { "up" } else { "down" };
            let gives = move |seen: &Seen| filled(seen, up, distance, segment);
            lines.push(Line {
                text: format!("{group}_shuffle_and_fill_{name}(u, f, {text})"),
                gives: Box::new(gives),
            });
        }
    }
    lines
}

fn filled<T: Number>(seen: &Seen, up: bool, distance: usize, segment: usize) -> Option<T> {
    let (base, at) = (seen.lane / segment * segment, seen.lane % segment);
    let other = |t: usize| T::own(t + 7);
    match up {
        true if at >= distance => seen.from(base + at - distance, T::own),
        true => seen.from(base + at + segment - distance, other),
        false if at + distance < segment => seen.from(base + at + distance, T::own),
        false => seen.from(base + at + distance - segment, other),
    }
}

/// Reductions and prefix sums: of `v` = `term(t)`, `w` = `factor(t)`, `u` = `own(t)`.
fn folds<T: Number>(group: &str) -> Vec<Line<T>> {
    let mut folds: Vec<Folded<T>> = vec![
        ("sum", "v", Fold::Sum, T::term),
        ("product", "w", Fold::Product, T::factor),
        ("min", "u", Fold::Min, T::own),
        ("max", "u", Fold::Max, T::own),
    ];
    if T::INTEGER {
        folds.extend([
            ("and", "u", Fold::And, T::own as fn(usize) -> T),
            ("or", "u", Fold::Or, T::own),
            ("xor", "u", Fold::Xor, T::own),
        ]);
    }
    let mut lines: Vec<Line<T>> = Vec::new();
    for (name, of, fold, value) in folds {
        lines.push(Line {
            text: format!("{group}_{name}({of})"),
            gives: Box::new(move |seen| seen.fold(fold, seen.width(), value)),
        });
        let neutral: T = match fold {
            Fold::Sum => T::zero(),
            Fold::Product => T::one(),
            _ => continue,
        };
        lines.push(Line {
            text: format!("{group}_prefix_inclusive_{name}({of})"),
            gives: Box::new(move |seen| seen.fold(fold, seen.lane + 1, value)),
        });
        lines.push(Line {
            text: format!("{group}_prefix_exclusive_{name}({of})"),
            gives: Box::new(move |seen| Some(seen.fold(fold, seen.lane, value).unwrap_or(neutral))),
        });
    }
    lines
}

/// Which threads call the functions, and how often.
#[derive(Clone, Copy)]
enum Way {
    /// Once, in the threads whose flag is set.
    Flagged(fn(usize) -> bool),
    /// In a loop of `lane % 4 + 1` rounds; the results of the last round count.
    Loop,
}

impl Way {
    fn body(self, writes: &str) -> String {
        match self {
            Way::Flagged(_) => format!("if (flags[i] == 0) return;\n{writes}"),
            Way::Loop => format!("for (uint round = 0; round <= lane % 4u; ++round) {{\n{writes}}}\n"),
        }
    }

    /// Whether the thread `other` in lane `other_lane` is active in the last call of the thread in lane `lane`.
    fn is_active(self, lane: usize, other: usize, other_lane: usize) -> bool {
        match self {
            Way::Flagged(flag) => flag(other),
            Way::Loop => other_lane % 4 >= lane % 4,
        }
    }
}

/// One kernel with all functions on vectors of `C` components of T, or on T itself if `C` is 1; component `c` of thread t has the value of
/// thread t + c.
fn all_functions<T: Number, const C: usize>(device: &Device, shape: Shape, ways: &[Way]) -> CaseResult {
    let (scalar, of) = (T::msl(), if C == 1 { T::msl() } else { format!("{}{C}", T::msl()) });
    let groups: Vec<(usize, Line<T>)> = [("simd", 32), ("quad", 4)]
        .into_iter()
        .flat_map(|(group, width)| {
            let lines = shuffles::<T>(group, width).into_iter().chain(folds::<T>(group));
            lines.map(move |line| (width, line))
        })
        .collect();
    let values = |name: &str| {
        let parts: Vec<String> = (0..C).map(|c| format!("{name}_[i + {c}]")).collect();
        format!("{of} {name} = {of}({});\n", parts.join(", "))
    };
    let mut writes = String::new();
    for (n, (_, line)) in groups.iter().enumerate() {
        writes += &format!("write<{of}>(o + {}, {});\n", n * C, line.text);
    }
    let names: Vec<String> =
        groups.iter().flat_map(|(_, l)| (0..C).map(|c| format!("{} [{c}]", l.text))).collect();
    let parameters = format!(
        ", device const uchar* flags, constant ushort& k, device const ushort* given, constant ushort& one,
        device const {scalar}* u_, device const {scalar}* f_, device const {scalar}* v_, device const {scalar}* w_"
    );
    for way in ways {
        let before: String = ["u", "f", "v", "w"].map(values).concat() + "ushort own = given[i];\n";
        let body = before + &way.body(&writes);
        let words = Words {
            name: "functions",
            shape,
            slots: names.len(),
            parameters: &parameters,
            body: &body,
            declarations: "",
        };
        let threads = shape.threads();
        let values = |make: &dyn Fn(usize) -> T| {
            let all: Vec<T> = (0..threads + C).map(make).collect();
            Ok::<Arg, elinvar::Error>((&device.buffer_with_data(&all)?).into())
        };
        let flags: Vec<u8> = (0..threads).map(|t| u8::from(way.is_active(0, t, 3))).collect();
        let own: Vec<u16> = (0..threads).map(|t| given(t) as u16).collect();
        let args = vec![
            (&device.buffer_with_data(&flags)?).into(),
            (GIVEN as u16).into(),
            (&device.buffer_with_data(&own)?).into(),
            1_u16.into(),
            values(&T::own)?,
            values(&|t| T::own(t + 7))?,
            values(&T::term)?,
            values(&T::factor)?,
        ];
        let kernel = words.compile(device)?;
        let got = words.run(device, &kernel, args)?;
        let wrong = compare::<T, C>(&got, &names, &groups, shape, *way);
        if !wrong.is_empty() {
            return Err(format!("{of} in {shape:?}:\n{}", wrong.join("\n")).into());
        }
    }
    Ok(())
}

fn compare<T: Number, const C: usize>(
    got: &[u64],
    names: &[String],
    groups: &[(usize, Line<T>)],
    shape: Shape,
    way: Way,
) -> Vec<String> {
    let peers = [shape.peers(32), shape.peers(4)];
    differences(got, names, |thread, slot| {
        let (width, line) = &groups[slot / C];
        let in_simdgroup = peers[0][thread].0;
        if !way.is_active(in_simdgroup, thread, in_simdgroup) {
            return Some(Word::Integer(UNWRITTEN));
        }
        let (lane, all) = &peers[usize::from(*width == 4)][thread];
        let first = in_simdgroup - lane;
        let active =
            all.iter().enumerate().map(|(l, t)| t.filter(|t| way.is_active(in_simdgroup, *t, first + l)));
        let seen = Seen { lane: *lane, peers: &active.collect(), component: slot % C };
        (line.gives)(&seen).map(|value| value.words()[0])
    })
}

/// Excludes individual threads, whole quadgroups and a whole simdgroup; one simdgroup has a single active thread.
fn some(t: usize) -> bool {
    t % 3 != 1 && t % 11 != 4 && !(44..52).contains(&t) && !(100..133).contains(&t) && (t < 200 || t == 217)
}

/// The last threadgroup has 30 threads.
fn of<T: Number, const C: usize>(device: &Device) -> CaseResult {
    all_functions::<T, C>(device, Shape::line(230, 100), &[Way::Flagged(|_| true), Way::Flagged(some)])
}

fn of_int(device: &Device) -> CaseResult {
    of::<i32, 1>(device)
}
fn of_uint(device: &Device) -> CaseResult {
    of::<u32, 1>(device)
}
fn of_short(device: &Device) -> CaseResult {
    of::<i16, 1>(device)
}
fn of_ushort(device: &Device) -> CaseResult {
    of::<u16, 1>(device)
}
fn of_char(device: &Device) -> CaseResult {
    of::<i8, 1>(device)
}
fn of_uchar(device: &Device) -> CaseResult {
    of::<u8, 1>(device)
}
fn of_long(device: &Device) -> CaseResult {
    of::<i64, 1>(device)
}
fn of_ulong(device: &Device) -> CaseResult {
    of::<u64, 1>(device)
}
fn of_half(device: &Device) -> CaseResult {
    of::<f16, 1>(device)
}
fn of_bfloat(device: &Device) -> CaseResult {
    of::<bf16, 1>(device)
}
fn of_float(device: &Device) -> CaseResult {
    of::<f32, 1>(device)
}
fn of_int2(device: &Device) -> CaseResult {
    of::<i32, 2>(device)
}
fn of_half4(device: &Device) -> CaseResult {
    of::<f16, 4>(device)
}
fn of_bfloat3(device: &Device) -> CaseResult {
    of::<bf16, 3>(device)
}
fn of_float3(device: &Device) -> CaseResult {
    of::<f32, 3>(device)
}
fn of_uchar2(device: &Device) -> CaseResult {
    of::<u8, 2>(device)
}

fn shapes(device: &Device) -> CaseResult {
    let full: [Shape; 5] = [
        Shape::line(3, 1),
        Shape::line(20, 20),
        Shape::line(99, 33),
        Shape { grid: [19, 9, 1], group: [8, 6, 1] },
        Shape { grid: [7, 7, 5], group: [5, 4, 3] },
    ];
    for shape in full {
        all_functions::<u32, 1>(device, shape, &[Way::Flagged(|t| t % 7 != 2)])?;
    }
    Ok(())
}

fn divergent_loop(device: &Device) -> CaseResult {
    all_functions::<i32, 1>(device, Shape::line(75, 40), &[Way::Loop])?;
    all_functions::<f32, 1>(device, Shape { grid: [15, 7, 1], group: [8, 8, 1] }, &[Way::Loop])
}

/// A condition per thread: true in all threads of a simdgroup, in none, or in some.
fn holds(t: usize) -> bool {
    match t / 32 {
        1 => true,
        2 => false,
        _ => !t.is_multiple_of(3) || t % 32 > 20,
    }
}

/// An expression of `b`, the group width, and the resulting word.
type Vote = (&'static str, usize, fn(&Seen) -> u64);
const VOTES: &[Vote] = &[
    ("simd_vote::vote_t(simd_ballot(b))", 32, |s| s.bits(holds)),
    ("simd_vote::vote_t(simd_ballot(true))", 32, |s| s.bits(|_| true)),
    ("simd_vote::vote_t(simd_active_threads_mask())", 32, |s| s.bits(|_| true)),
    ("ulong(simd_all(b))", 32, |s| u64::from(s.bits(holds) == s.bits(|_| true))),
    ("ulong(simd_any(b))", 32, |s| u64::from(s.bits(holds) != 0)),
    ("ulong(simd_ballot(b).all())", 32, |s| u64::from(s.bits(holds) == 0xffff_ffff)),
    ("ulong(simd_ballot(b).any())", 32, |s| u64::from(s.bits(holds) != 0)),
    ("ulong(simd_is_first())", 32, |s| u64::from(s.first() == s.lane)),
    ("ulong(simd_broadcast_first(b))", 32, |s| (s.bits(holds) >> s.first()) & 1),
    ("popcount(simd_vote::vote_t(simd_ballot(b)))", 32, |s| u64::from(s.bits(holds).count_ones())),
    ("ulong(quad_vote::vote_t(quad_ballot(b)))", 4, |s| s.bits(holds)),
    ("ulong(quad_vote::vote_t(quad_active_threads_mask()))", 4, |s| s.bits(|_| true)),
    ("ulong(quad_all(b))", 4, |s| u64::from(s.bits(holds) == s.bits(|_| true))),
    ("ulong(quad_any(b))", 4, |s| u64::from(s.bits(holds) != 0)),
    ("ulong(quad_ballot(b).all())", 4, |s| u64::from(s.bits(holds) == 15)),
    ("ulong(quad_ballot(b).any())", 4, |s| u64::from(s.bits(holds) != 0)),
    ("ulong(quad_is_first())", 4, |s| u64::from(s.first() == s.lane)),
    ("ulong(quad_broadcast_first(b))", 4, |s| (s.bits(holds) >> s.first()) & 1),
];

impl Seen<'_> {
    /// Mask of the active lanes for which a condition holds.
    fn bits(&self, condition: fn(usize) -> bool) -> u64 {
        let lanes = (0..self.width()).filter(|l| self.from(*l, condition) == Some(true));
        lanes.map(|l| 1 << l).sum()
    }

    fn first(&self) -> usize {
        self.bits(|_| true).trailing_zeros() as usize
    }
}

fn votes(device: &Device) -> CaseResult {
    let names: Vec<String> = VOTES.iter().map(|(name, ..)| (*name).to_owned()).collect();
    let mut writes = String::new();
    for (n, name) in names.iter().enumerate() {
        writes += &format!("o[{n}] = {name};\n");
    }
    let parameters = ", device const uchar* flags, device const bool* b_";
    let body = format!("bool b = b_[i];\nif (flags[i] != 0) {{\n{writes}}}\n");
    for shape in [Shape::line(5, 1), Shape::line(230, 100), Shape { grid: [19, 9, 1], group: [8, 6, 1] }] {
        let words =
            Words { name: "votes", shape, slots: names.len(), parameters, body: &body, declarations: "" };
        let kernel = words.compile(device)?;
        let peers = [shape.peers(32), shape.peers(4)];
        for flag in [(|_| true) as fn(usize) -> bool, some, |t| t % 32 == 9, |t| t == 70] {
            let threads = 0..shape.threads();
            let flags: Vec<u8> = threads.clone().map(|t| u8::from(flag(t))).collect();
            let conditions: Vec<u8> = threads.map(|t| u8::from(holds(t))).collect();
            let args = vec![
                (&device.buffer_with_data(&flags)?).into(),
                (&device.buffer_with_data(&conditions)?).into(),
            ];
            let got = words.run(device, &kernel, args)?;
            let wrong = differences(&got, &names, |thread, slot| {
                let (_, width, gives) = VOTES[slot];
                let (lane, all) = &peers[usize::from(width == 4)][thread];
                let active: Peers = all.iter().map(|t| t.filter(|t| flag(*t))).collect();
                let seen = Seen { lane: *lane, peers: &active, component: 0 };
                Some(Word::Integer(if flag(thread) { gives(&seen) } else { UNWRITTEN }))
            });
            if !wrong.is_empty() {
                return Err(format!("{shape:?}:\n{}", wrong.join("\n")).into());
            }
        }
    }
    Ok(())
}
