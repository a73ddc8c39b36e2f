//! Kernels of a STARK prover over the field of 15·2²⁷ + 1 and its extension by X⁴ = -11: element-wise arithmetic, folding, mixing,
//! transforms, evaluation, and the hashes Poseidon2 and SHA-256.

use super::field::{Field, Value, ZERO, reversed};
use crate::corpus::kernels::case::{Case, guarded};
use crate::corpus::kernels::element::Sequence;

const CORPUS: &str = "risc0-circuit-rv32im-sys";
const MODULUS: u64 = 15 * (1 << 27) + 1;
/// No square modulo it.
const GENERATOR: u64 = 31;

/// Number of elements of most cases.
const COUNT: usize = 24;

fn base() -> Field {
    Field::prime([MODULUS, 0, 0, 0], 32)
}

fn extension() -> Field {
    Field { degree: 4, residue: MODULUS - 11, ..base() }
}

pub fn cases() -> Vec<Case> {
    [element_wise(), folding(), transforms(), sampling(), poseidon(), sha()].into_iter().flatten().collect()
}

fn some(words: Vec<u32>) -> Vec<Option<u32>> {
    words.into_iter().map(Some).collect()
}

/// The coefficients of elements as a matrix, with one row for each power.
fn planes(values: &[Value]) -> Vec<Value> {
    (0..values[0].len()).flat_map(|k| values.iter().map(move |value| vec![value[k]])).collect()
}

fn element_wise() -> Vec<Case> {
    let (field, wide) = (base(), extension());
    let case = |kernel| Case::new(CORPUS, "eltwise.metal", kernel).threads(COUNT, 8);
    let (x, y) = (field.samples(COUNT, 3), field.samples(COUNT, 5));
    let factor = y[11].clone();
    let sums: Vec<Value> = x.iter().zip(&y).map(|(x, y)| field.add(x, y)).collect();
    let products: Vec<Value> = x.iter().map(|x| field.multiply(x, &factor)).collect();
    let parts = 5;
    let terms = wide.samples(parts * COUNT, 7);
    let totals: Vec<Value> = (0..COUNT)
        .map(|i| (0..parts).fold(wide.constant(ZERO), |sum, k| wide.add(&sum, &terms[k * COUNT + i])))
        .collect();
    // Invalid elements, which have all bits set, become zero.
    let marked = |words: Vec<u32>| -> (Vec<u32>, Vec<u32>) {
        let marks = |word: u32| (0..words.len()).map(|i| if i % 5 == 2 { word } else { words[i] }).collect();
        (marks(u32::MAX), marks(0))
    };
    let (before, after) = marked(field.short_words(&x));
    let (wide_before, wide_after) = marked(wide.short_words(&terms[..COUNT]));
    let words = |values: &[Value]| field.short_words(values);
    vec![
        case("eltwise_add_fp").full_output(words(&sums)).input(&words(&x)).input(&words(&y)),
        case("eltwise_mul_factor_fp")
            .updated(&guarded(&words(&x)), &some(words(&products)))
            .input(&words(&[factor])),
        case("eltwise_copy_fp").full_output(words(&x)).input(&words(&x)),
        case("eltwise_sum_fpext")
            .full_output(words(&planes(&totals)))
            .input(&wide.short_words(&terms))
            .input(&[COUNT as u32])
            .input(&[parts as u32]),
        case("eltwise_zeroize_fp").updated(&guarded(&before), &some(after)),
        case("eltwise_zeroize_fpext").updated(&guarded(&wide_before), &some(wide_after)),
    ]
}

fn folding() -> Vec<Case> {
    let (field, wide) = (base(), extension());
    // 16 values, in bit-reversed order, become the value of a polynomial with them as coefficients.
    let (folds, count) = (16, 12);
    let values = wide.samples(folds * count, 11);
    let mix = wide.samples(5, 13).remove(4);
    let powers: Vec<Value> = (0..folds).map(|k| wide.power(&mix, &[k as u64, 0, 0, 0])).collect();
    let folded: Vec<Value> = (0..count)
        .map(|i| {
            (0..folds).fold(wide.constant(ZERO), |sum, k| {
                wide.add(&sum, &wide.multiply(&powers[k], &values[reversed(k, 4) * count + i]))
            })
        })
        .collect();
    let fold = Case::new(CORPUS, "fri.metal", "fri_fold")
        .full_output(field.short_words(&planes(&folded)))
        .input(&field.short_words(&planes(&values)))
        .input(&wide.short_words(std::slice::from_ref(&mix)))
        .input(&[count as u32])
        .threads(count, 4);
    // Columns are multiplied by powers and added to the combination that each belongs to.
    let combos = [1_u32, 0, 1, 2, 0];
    let columns = field.samples(combos.len() * count, 17);
    let start = wide.samples(5, 19).remove(3);
    let before = wide.samples(3 * count, 23);
    let mut after = before.clone();
    for (k, combo) in combos.iter().enumerate() {
        let weight = wide.multiply(&start, &powers[k]);
        for i in 0..count {
            let place = *combo as usize * count + i;
            after[place] = wide.add(&after[place], &wide.multiply(&weight, &columns[k * count + i]));
        }
    }
    let mixed = Case::new(CORPUS, "mix.metal", "mix_poly_coeffs")
        .updated(&guarded(&wide.short_words(&before)), &some(wide.short_words(&after)))
        .input(&field.short_words(&columns))
        .input(&combos)
        .input(&wide.short_words(&[start]))
        .input(&wide.short_words(&[mix]))
        .input(&[combos.len() as u32])
        .input(&[count as u32])
        .threads(count, 4);
    let bits = 3;
    let x = field.samples(COUNT, 29);
    let shifted: Vec<Value> = (0..COUNT)
        .map(|i| {
            let exponent = reversed(i % (1 << bits), bits) as u64;
            field.multiply(&x[i], &field.power(&field.constant([3, 0, 0, 0]), &[exponent, 0, 0, 0]))
        })
        .collect();
    let shift = Case::new(CORPUS, "zk.metal", "zk_shift")
        .updated(&guarded(&field.short_words(&x)), &some(field.short_words(&shifted)))
        .input(&[bits])
        .threads(COUNT, 8);
    vec![fold, mixed, shift]
}

/// Stages of transforms of three columns, and polynomials at points of the extension.
fn transforms() -> Vec<Case> {
    let (field, wide) = (base(), extension());
    let (bits, stage, columns) = (5_u32, 4_u32, 3);
    let size = 1 << bits;
    let x = field.samples(columns * size, 31);
    // Element k is a root of unity of order 2ᵏ.
    let roots: Vec<Value> = (0..=bits).map(|k| field.root(GENERATOR, k)).collect();
    let half = 1 << (stage - 1);
    let powers: Vec<Value> =
        (0..half).map(|s| field.power(&roots[stage as usize], &[s as u64, 0, 0, 0])).collect();
    let (mut forward, mut backward) = (x.clone(), x.clone());
    for block in (0..x.len()).step_by(2 * half) {
        for (s, power) in powers.iter().enumerate() {
            let (low, high) = (block + s, block + s + half);
            let product = field.multiply(&x[high], power);
            forward[low] = field.add(&x[low], &product);
            forward[high] = field.subtract(&x[low], &product);
            backward[low] = field.add(&x[low], &x[high]);
            backward[high] = field.multiply(&field.subtract(&x[low], &x[high]), power);
        }
    }
    let before = guarded(&field.short_words(&x));
    let step = |kernel: &str, after: &[Value]| {
        Case::new(CORPUS, "ntt.metal", kernel)
            .updated(&before, &some(field.short_words(after)))
            .input(&field.short_words(&roots))
            .input(&[bits])
            .input(&[stage])
            .input(&[columns as u32])
            .groups((2, 1, 1), (2, 2, 2))
    };
    let order: Vec<Value> =
        (0..x.len()).map(|i| x[i / size * size + reversed(i % size, bits)].clone()).collect();
    let degree = 300;
    let coefficients = field.samples(2 * degree, 37);
    let (which, points) = ([1_u32, 0, 1], wide.samples(6, 41));
    let values: Vec<Value> = which
        .iter()
        .zip(&points[3..])
        .map(|(which, point)| {
            let polynomial = &coefficients[*which as usize * degree..][..degree];
            polynomial
                .iter()
                .rev()
                .fold(wide.constant(ZERO), |sum, x| wide.add(&wide.multiply(&sum, point), x))
        })
        .collect();
    vec![
        step("multi_ntt_fwd_step", &forward),
        step("multi_ntt_rev_step", &backward),
        Case::new(CORPUS, "ntt.metal", "multi_bit_reverse")
            .updated(&before, &some(field.short_words(&order)))
            .input(&[bits])
            .threads(x.len(), 32),
        Case::new(CORPUS, "ntt.metal", "multi_poly_eval")
            .full_output(wide.short_words(&values))
            .input(&field.short_words(&coefficients))
            .input(&which)
            .input(&wide.short_words(&points[3..]))
            .input(&[degree as u32])
            .groups(which.len(), 256),
    ]
}

fn sampling() -> Vec<Case> {
    let (polynomials, size, expand) = (3, 8, 2_u32);
    let mut sequence = Sequence(43);
    let input: Vec<u32> = sequence.any(polynomials * size);
    let outputs = size << expand;
    let expanded: Vec<u32> =
        (0..polynomials * outputs).map(|i| input[i / outputs * size + ((i % outputs) >> expand)]).collect();
    let (index, stride) = (5, 11);
    let source: Vec<u32> = sequence.any(COUNT * stride);
    let gathered: Vec<u32> = (0..COUNT).map(|i| source[i * stride + index]).collect();
    // A row of a matrix, and the digests beside its path to the root of a tree of eight leaves.
    let (rows, columns, row) = (8, 5, 6_usize);
    let (matrix, tree): (Vec<u32>, Vec<u32>) = (sequence.any(rows * columns), sequence.any(2 * rows * 8));
    let mut opened: Vec<u32> = (0..columns).map(|c| matrix[c * rows + row]).collect();
    let mut node = row + rows;
    while node > 1 {
        opened.extend(&tree[(node ^ 1) * 8..][..8]);
        node /= 2;
    }
    let count = opened.len();
    vec![
        Case::new(CORPUS, "ntt.metal", "batch_expand")
            .full_output(expanded)
            .input(&input)
            .input(&[polynomials as u32])
            .input(&[outputs as u32])
            .input(&[size as u32])
            .input(&[expand])
            .threads(outputs, 8),
        Case::new(CORPUS, "ntt.metal", "gather_sample")
            .full_output(gathered)
            .input(&source)
            .input(&[index as u32])
            .input(&[stride as u32])
            .threads(COUNT, 8),
        Case::new(CORPUS, "poseidon2.metal", "query")
            .full_output(opened)
            .input(&matrix)
            .input(&tree)
            .input(&[rows as u32])
            .input(&[columns as u32])
            .input(&[row as u32])
            .threads(count, count),
    ]
}

/// Number of elements of Poseidon2's state, of those that absorb input, and of a digest.
const CELLS: usize = 24;
const RATE: usize = 16;
const DIGEST: usize = 8;
/// Full rounds before and after, and partial rounds.
const ROUNDS: (usize, usize) = (4, 21);

/// The permutation, with matrices written out.
struct Poseidon {
    field: Field,
    /// For each round one constant for each cell.
    constants: Vec<Value>,
    diagonal: Vec<Value>,
}

impl Poseidon {
    fn new() -> Self {
        let field = base();
        let constants = field.samples((2 * ROUNDS.0 + ROUNDS.1) * CELLS, 47);
        let diagonal = field.samples(CELLS, 53);
        Self { field, constants, diagonal }
    }

    fn power(&self, x: &Value) -> Value {
        self.field.power(x, &[7, 0, 0, 0])
    }

    /// Multiplies by the circulant of blocks `(2M, M, …, M)`, where M is the paper's matrix of four rows.
    fn external(&self, state: &mut [Value]) {
        const M: [[u64; 4]; 4] = [[5, 7, 1, 3], [4, 6, 1, 1], [1, 3, 5, 7], [1, 1, 4, 6]];
        let old = state.to_vec();
        for (i, cell) in state.iter_mut().enumerate() {
            *cell = self.field.constant(ZERO);
            for (j, value) in old.iter().enumerate() {
                let twice = if i / 4 == j / 4 { 2 } else { 1 };
                let weight = self.field.constant([twice * M[i % 4][j % 4], 0, 0, 0]);
                *cell = self.field.add(cell, &self.field.multiply(value, &weight));
            }
        }
    }

    /// Multiplies by the matrix of ones plus a diagonal.
    fn internal(&self, state: &mut [Value]) {
        let sum = state.iter().fold(self.field.constant(ZERO), |sum, x| self.field.add(&sum, x));
        for (cell, factor) in state.iter_mut().zip(&self.diagonal) {
            *cell = self.field.add(&sum, &self.field.multiply(cell, factor));
        }
    }

    fn permute(&self, state: &mut [Value]) {
        self.external(state);
        for round in 0..2 * ROUNDS.0 + ROUNDS.1 {
            let full = round < ROUNDS.0 || round >= ROUNDS.0 + ROUNDS.1;
            let changed = if full { CELLS } else { 1 };
            for (k, cell) in state.iter_mut().enumerate().take(changed) {
                *cell = self.power(&self.field.add(cell, &self.constants[round * CELLS + k]));
            }
            if full { self.external(state) } else { self.internal(state) }
        }
    }

    /// The digest of elements, padded with zeros. Input replaces cells.
    fn digest(&self, input: &[Value]) -> Vec<Value> {
        let mut state = vec![self.field.constant(ZERO); CELLS];
        for block in input.chunks(RATE) {
            for (k, cell) in state.iter_mut().enumerate().take(RATE) {
                *cell = block.get(k).cloned().unwrap_or_else(|| self.field.constant(ZERO));
            }
            self.permute(&mut state);
        }
        state.truncate(DIGEST);
        state
    }
}

fn poseidon() -> Vec<Case> {
    let hash = Poseidon::new();
    let field = &hash.field;
    let case = |kernel: &str| {
        Case::new(CORPUS, "poseidon2.metal", kernel)
            .input(&field.short_words(&hash.constants))
            .input(&field.short_words(&hash.diagonal))
    };
    let pairs = 3;
    let digests = field.samples(2 * pairs * DIGEST, 59);
    let folded: Vec<Value> = digests.chunks(2 * DIGEST).flat_map(|pair| hash.digest(pair)).collect();
    let (rows, columns) = (3, RATE + 5);
    let matrix = field.samples(rows * columns, 61);
    let hashed: Vec<Value> = (0..rows)
        .flat_map(|row| {
            let input: Vec<Value> = (0..columns).map(|column| matrix[column * rows + row].clone()).collect();
            hash.digest(&input)
        })
        .collect();
    vec![
        case("poseidon2_fold")
            .full_output(field.short_words(&folded))
            .input(&field.short_words(&digests))
            .input(&[pairs as u32])
            .threads(pairs, pairs),
        case("poseidon2_rows")
            .full_output(field.short_words(&hashed))
            .input(&field.short_words(&matrix))
            .input(&[rows as u32])
            .input(&[columns as u32])
            .threads(rows, rows),
    ]
}

/// The first 32 bits of the fractional part of a root of the n-th prime.
fn root_bits(prime: u32, cubic: bool) -> u32 {
    // The largest integer whose power is at most prime·2⁶⁴ or prime·2⁹⁶, by bisection.
    let (mut low, mut high) = (0_u128, 1_u128 << 40);
    while high - low > 1 {
        let middle = (low + high) / 2;
        let fits = if cubic {
            // middle³ ≤ prime·2⁹⁶ without overflow: numbers below 2³⁶ have cubes below 2¹⁰⁸.
            middle < 1 << 36 && middle * middle * middle <= u128::from(prime) << 96
        } else {
            middle * middle <= u128::from(prime) << 64
        };
        if fits { low = middle } else { high = middle }
    }
    low as u32
}

fn primes() -> impl Iterator<Item = u32> {
    (2_u32..).filter(|n| (2..*n).take_while(|d| d * d <= *n).all(|d| n % d != 0))
}

/// SHA-256's compression of one block (FIPS 180-4, 6.2.2).
fn compress(state: &mut [u32; 8], block: &[u32]) {
    let constants: Vec<u32> = primes().take(64).map(|prime| root_bits(prime, true)).collect();
    let mut w = block.to_vec();
    for t in 16..64 {
        let small = |x: u32, a, b, c: u32| x.rotate_right(a) ^ x.rotate_right(b) ^ (x >> c);
        let next = small(w[t - 2], 17, 19, 10)
            .wrapping_add(w[t - 7])
            .wrapping_add(small(w[t - 15], 7, 18, 3))
            .wrapping_add(w[t - 16]);
        w.push(next);
    }
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    let large = |x: u32, i, j, k| x.rotate_right(i) ^ x.rotate_right(j) ^ x.rotate_right(k);
    for (word, constant) in w.iter().zip(&constants) {
        let first = h
            .wrapping_add(large(e, 6, 11, 25))
            .wrapping_add((e & f) ^ (!e & g))
            .wrapping_add(*constant)
            .wrapping_add(*word);
        let second = large(a, 2, 13, 22).wrapping_add((a & b) ^ (a & c) ^ (b & c));
        (h, g, f, e) = (g, f, e, d.wrapping_add(first));
        (d, c, b, a) = (c, b, a, first.wrapping_add(second));
    }
    for (word, more) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *word = word.wrapping_add(more);
    }
}

/// The hash of words without padding but zeros; words and digest are stored in little-endian order.
fn sha256(words: &[u32]) -> [u32; 8] {
    let mut state: [u32; 8] = std::array::from_fn(|k| root_bits(primes().nth(k).unwrap_or(2), false));
    for block in words.chunks(16) {
        let mut block: Vec<u32> = block.iter().map(|word| word.swap_bytes()).collect();
        block.resize(16, 0);
        compress(&mut state, &block);
    }
    state.map(u32::swap_bytes)
}

fn sha() -> Vec<Case> {
    let mut sequence = Sequence(67);
    let (rows, columns, pairs) = (4, 21, 3);
    let matrix: Vec<u32> = sequence.any(rows * columns);
    let hashed: Vec<u32> = (0..rows)
        .flat_map(|row| {
            let words: Vec<u32> = (0..columns).map(|column| matrix[column * rows + row]).collect();
            sha256(&words)
        })
        .collect();
    let digests: Vec<u32> = sequence.any(pairs * 16);
    let folded: Vec<u32> = digests.chunks(16).flat_map(sha256).collect();
    vec![
        Case::new(CORPUS, "sha.metal", "sha_rows")
            .full_output(hashed)
            .input(&matrix)
            .input(&[rows as u32])
            .input(&[columns as u32])
            .threads(rows, rows),
        Case::new(CORPUS, "sha.metal", "sha_fold").full_output(folded).input(&digests).threads(pairs, pairs),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::corpus::kernels::provers::field::ONE;

    #[test]
    fn sha256_of_abc() {
        // FIPS 180-4's example: one padded block.
        let mut block = [0; 16];
        (block[0], block[15]) = (0x6162_6380_u32.swap_bytes(), 24_u32.swap_bytes());
        let digest = sha256(&block).map(u32::swap_bytes);
        assert_eq!(digest[0], 0xba78_16bf);
        assert_eq!(digest[7], 0xf200_15ad);
    }

    #[test]
    fn minus_eleven_is_a_root_of_the_extension() {
        let field = extension();
        let x = vec![ZERO, ONE, ZERO, ZERO];
        let eleven = field.constant([11, 0, 0, 0]);
        assert_eq!(field.add(&field.power(&x, &[4, 0, 0, 0]), &eleven), field.constant(ZERO));
        assert_eq!(field.power(&base().root(GENERATOR, 27), &[1 << 26, 0, 0, 0])[0], [MODULUS - 1, 0, 0, 0]);
    }
}
