//! MLX's kernels with atomics and with a state: scatter with sums, extremes and products, and the gated delta rule.

use elinvar::{Constants, bf16, f16};

use super::super::case::{Case, guarded};
use super::super::element::{Element, Sequence};
use super::super::reference::U;

const CORPUS: &str = "mlx-metal";

pub fn cases() -> Vec<Case> {
    let mut cases = scatter::<f32, i32>("float32");
    cases.extend(scatter::<f16, i32>("float16"));
    cases.extend(scatter::<bf16, u32>("bfloat16"));
    cases.extend(scatter::<i32, i64>("int32"));
    cases.extend(scatter::<u8, u8>("uint8"));
    cases.extend(scatter::<i16, i16>("int16"));
    cases.extend([delta::<f32>("float32", true), delta::<f16>("float16", false)]);
    cases
}

/// Updates along the middle of three dimensions, several of each element. The numbers are small integers, so that every order is exact.
fn scatter<T: Element, I: Element>(name: &str) -> Vec<Case> {
    let (blocks, size, columns, updates) = (3, 7, 10, 12);
    let old: Vec<T> =
        Sequence(3).any::<u8>(blocks * size * columns).iter().map(|x| T::of((x % 5).into())).collect();
    let indices: Vec<I> =
        Sequence(5).any::<u8>(blocks * updates * columns).iter().map(|x| I::of((x % 7).into())).collect();
    let signed = I::of(-1.0).value() < 0.0;
    // An index below zero counts from the end.
    let given: Vec<I> = indices
        .iter()
        .enumerate()
        .map(|(e, index)| if signed && e % 3 == 0 { I::of(index.value() - size as f64) } else { *index })
        .collect();
    let make = |kind: &str, join: fn(f64, f64) -> f64, values: fn(u8) -> u8| {
        let new: Vec<T> = Sequence(7)
            .any::<u8>(blocks * updates * columns)
            .iter()
            .map(|x| T::of(values(*x).into()))
            .collect();
        let mut want: Vec<f64> = old.iter().map(|x| x.value()).collect();
        for (e, update) in new.iter().enumerate() {
            let (block, column) = (e / columns / updates, e % columns);
            let place = (block * size + indices[e].value() as usize) * columns + column;
            want[place] = join(want[place], update.value());
        }
        let want: Vec<Option<T>> = want.into_iter().map(|x| Some(T::of(x))).collect();
        Case::new(CORPUS, "scatter.metal", format!("scatter_axis_{kind}_{name}"))
            .input(&new)
            .input(&given)
            .updated(&guarded(&old), &want)
            .cast()
            .input(&[blocks as i32, columns as i32])
            .input(&[0_i64; 2])
            .input(&[0_i64; 2])
            .value([2_u64])
            .value([1_i32])
            .value([size as i32])
            .value([columns as u64])
            .value([columns as u64])
            .threads((columns, updates, blocks), (5, 4, 1))
    };
    vec![
        make("sum", |a, b| a + b, |x| x % 4),
        make("max", f64::max, |x| x % 100),
        make("min", f64::min, |x| x % 100),
        make("prod", |a, b| a * b, |x| if x > 225 { 2 } else { 1 }),
    ]
}

/// `S ← g S; S ← S + β (v − S k) kᵀ; y = S q` for each step, with a state for each head of values.
fn delta<T: Element>(name: &str, saves: bool) -> Case {
    let [batch, steps, keys, values, key_heads, heads] = [2, 5, 64, 12, 2, 4];
    let numbers = |count: usize, low: f64, seed: u64| -> Vec<T> { Sequence(seed).between(count, low, 0.25) };
    let (q, k) = (
        numbers(batch * steps * key_heads * keys, -0.25, 11),
        numbers(batch * steps * key_heads * keys, -0.25, 13),
    );
    let v = numbers(batch * steps * heads * values, -0.25, 17);
    let (gate, beta) = (numbers(batch * steps * heads, 0.1, 19), numbers(batch * steps * heads, 0.1, 23));
    let start: Vec<f32> = Sequence(29).between(batch * heads * values * keys, -1.0, 1.0);
    let mut state: Vec<f64> = start.iter().map(|x| x.value()).collect();
    let mut out = vec![(0.0, 0.0); batch * steps * heads * values];
    let saved = steps.div_ceil(2);
    let mut cache = vec![(0.0, 0.0); batch * heads * saved * values * keys];
    let error = 400.0 * U;
    for line in 0..batch * heads * values {
        let (b, head, row) = (line / values / heads, line / values % heads, line % values);
        let state = &mut state[line * keys..][..keys];
        for t in 0..steps {
            if t % 2 == 0 {
                let place = ((line / values * saved + t / 2) * values + row) * keys;
                for (entry, value) in cache[place..].iter_mut().zip(&*state) {
                    *entry = (*value, error);
                }
            }
            let of_keys = ((b * steps + t) * key_heads + head / (heads / key_heads)) * keys;
            let of_head = (b * steps + t) * heads + head;
            let key = |i: usize| k[of_keys + i].value();
            state.iter_mut().for_each(|value| *value *= gate[of_head].value());
            let memory: f64 = state.iter().enumerate().map(|(i, value)| value * key(i)).sum();
            let change = (v[of_head * values + row].value() - memory) * beta[of_head].value();
            state.iter_mut().enumerate().for_each(|(i, value)| *value += key(i) * change);
            let value: f64 = state.iter().enumerate().map(|(i, value)| value * q[of_keys + i].value()).sum();
            out[of_head * values + row] = (value, error + T::ROUNDING * value.abs());
        }
    }
    let case = Case::new(CORPUS, "gated_delta.metal", format!("gated_delta_seq_{name}"))
        .constants(Constants::new().set(200, saves))
        .input(&q)
        .input(&k)
        .input(&v)
        .input(&start)
        .input(&gate)
        .input(&beta)
        .near::<T>(out, "400 roundings of values up to 1, one of the type")
        .near::<f32>(
            state.into_iter().map(|value| (value, error)).collect(),
            "400 roundings of values up to 1",
        )
        .value([steps as i32]);
    let case = if saves { case.near::<f32>(cache, "400 roundings of values up to 1") } else { case };
    case.threads((32, values, batch * heads), (32, 4, 1))
}
