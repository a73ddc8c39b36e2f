//! The hashes Rescue Prime Optimized (eprint 2022/1577) and its extension RPX (eprint 2023/1045) of two provers: sponges over columns and
//! rows, and Merkle trees. The round constants are derived with SHAKE256, as the papers define them.

use elinvar::Constants;

use super::field::{Field, Value, ZERO};
use crate::corpus::kernels::case::{Case, guarded};
use crate::corpus::kernels::element::Sequence;

const MINISTARK: (&str, &str) = ("ministark-gpu", "shaders.metal");
const MIDEN: (&str, &str) = ("miden-gpu", "shaders.metal");
const MODULUS: u64 = 0xffff_ffff_0000_0001;
const SUFFIX: &str = "p18446744069414584321_fp";

/// Elements of a state, those that are not absorbed into, rounds, and elements of a digest.
const WIDTH: usize = 12;
const CAPACITY: usize = 4;
const ROUNDS: usize = 7;
const DIGEST: usize = 4;
/// The first row of the circulant matrix.
const MATRIX: [u64; WIDTH] = [7, 23, 8, 26, 13, 10, 9, 7, 6, 22, 21, 8];
/// The inverse of 7 modulo p - 1.
const INVERSE: u64 = 10_540_996_611_094_048_183;

pub fn cases() -> Vec<Case> {
    let hash = Rescue::new();
    let mut cases = Vec::new();
    for corpus in [MINISTARK, MIDEN] {
        cases.extend(of_hash(&hash, corpus, "rpo", Rescue::optimized));
    }
    cases.extend(of_hash(&hash, MIDEN, "rpx", Rescue::extended));
    cases
}

/// Keccak-f[1600] (FIPS 202, 3.3), on lanes numbered x + 5y.
fn keccak(state: &mut [u64; 25]) {
    // The bits of the round constants are those of a shift register (3.2.5).
    let mut register = 1_u8;
    let mut bit = || {
        let bit = register & 1;
        register = register << 1 ^ if register >> 7 == 1 { 0x71 } else { 0 };
        u64::from(bit)
    };
    for _ in 0..24 {
        let column = |x: usize| (0..5).fold(0, |sum, y| sum ^ state[x + 5 * y]);
        let columns: [u64; 5] = std::array::from_fn(column);
        for (at, lane) in state.iter_mut().enumerate() {
            let x = at % 5;
            *lane ^= columns[(x + 4) % 5] ^ columns[(x + 1) % 5].rotate_left(1);
        }
        let mut moved = *state;
        let (mut x, mut y) = (1, 0);
        for t in 0..24_u32 {
            let target = (y, (2 * x + 3 * y) % 5);
            moved[target.0 + 5 * target.1] = state[x + 5 * y].rotate_left((t + 1) * (t + 2) / 2 % 64);
            (x, y) = target;
        }
        for (at, lane) in state.iter_mut().enumerate() {
            let row = |step: usize| moved[(at % 5 + step) % 5 + at / 5 * 5];
            *lane = row(0) ^ (!row(1) & row(2));
        }
        state[0] ^= (0..7).fold(0, |constant, j| constant | bit() << ((1 << j) - 1));
    }
}

/// SHAKE256 of a message that is shorter than a block (FIPS 202, 6.2).
fn shake256(message: &[u8], length: usize) -> Vec<u8> {
    const RATE: usize = 136;
    let mut block = [0; 200];
    block[..message.len()].copy_from_slice(message);
    block[message.len()] ^= 0x1f;
    block[RATE - 1] ^= 0x80;
    let mut state: [u64; 25] =
        std::array::from_fn(|i| u64::from_le_bytes(block[8 * i..][..8].try_into().unwrap_or_default()));
    let mut output = Vec::new();
    while output.len() < length {
        keccak(&mut state);
        output.extend(state.iter().flat_map(|lane| lane.to_le_bytes()).take(RATE));
    }
    output.truncate(length);
    output
}

struct Rescue {
    field: Field,
    /// Two times [`WIDTH`] for each round.
    constants: Vec<Value>,
}

impl Rescue {
    fn new() -> Self {
        let bytes =
            shake256(format!("RPO({MODULUS},{WIDTH},{CAPACITY},128)").as_bytes(), 9 * 2 * WIDTH * ROUNDS);
        // Numbers of nine bytes, modulo p.
        let number = |bytes: &[u8]| {
            let wide = bytes.iter().rev().fold(0_u128, |number, byte| number << 8 | u128::from(*byte));
            vec![[(wide % u128::from(MODULUS)) as u64, 0, 0, 0]]
        };
        let constants = bytes.chunks(9).map(number).collect();
        Self { field: Field::prime([MODULUS, 0, 0, 0], 64), constants }
    }

    /// Multiplies by the circulant matrix.
    fn mix(&self, state: &mut [Value]) {
        let old = state.to_vec();
        for (i, cell) in state.iter_mut().enumerate() {
            *cell = old.iter().enumerate().fold(self.field.constant(ZERO), |sum, (j, value)| {
                let factor = self.field.constant([MATRIX[(j + WIDTH - i) % WIDTH], 0, 0, 0]);
                self.field.add(&sum, &self.field.multiply(&factor, value))
            });
        }
    }

    /// Adds one half of a round's constants.
    fn add(&self, state: &mut [Value], round: usize, half: usize) {
        for (k, cell) in state.iter_mut().enumerate() {
            *cell = self.field.add(cell, &self.constants[(2 * round + half) * WIDTH + k]);
        }
    }

    fn power(&self, state: &mut [Value], exponent: u64) {
        state.iter_mut().for_each(|cell| *cell = self.field.power(cell, &[exponent, 0, 0, 0]));
    }

    fn round(&self, state: &mut [Value], round: usize) {
        for (half, exponent) in [7, INVERSE].into_iter().enumerate() {
            self.mix(state);
            self.add(state, round, half);
            self.power(state, exponent);
        }
    }

    fn optimized(&self, state: &mut [Value]) {
        (0..ROUNDS).for_each(|round| self.round(state, round));
    }

    /// Rounds of the first kind alternate with seventh powers in the extension by X³ = X + 1; the last one only mixes.
    fn extended(&self, state: &mut [Value]) {
        for round in 0..ROUNDS - 1 {
            if round % 2 == 0 {
                self.round(state, round);
            } else {
                self.add(state, round, 0);
                for cells in state.chunks_mut(3) {
                    let base: Vec<Value> = cells.to_vec();
                    let seventh = (1..7).fold(base.clone(), |power, _| self.cubic_product(&power, &base));
                    cells.clone_from_slice(&seventh);
                }
            }
        }
        self.mix(state);
        self.add(state, ROUNDS - 1, 0);
    }

    fn cubic_product(&self, a: &[Value], b: &[Value]) -> Vec<Value> {
        let mut product = vec![self.field.constant(ZERO); 5];
        for (i, j) in (0..3).flat_map(|i| (0..3).map(move |j| (i, j))) {
            product[i + j] = self.field.add(&product[i + j], &self.field.multiply(&a[i], &b[j]));
        }
        for power in [4, 3] {
            let high = product[power].clone();
            for lower in [power - 3, power - 2] {
                product[lower] = self.field.add(&product[lower], &high);
            }
        }
        product.truncate(3);
        product
    }
}

type Permutation = fn(&Rescue, &mut [Value]);

/// Number of sponges, and of leaves of a tree.
const COUNT: usize = 6;
const LEAVES: usize = 8;

fn of_hash(
    hash: &Rescue,
    corpus: (&'static str, &'static str),
    name: &str,
    permute: Permutation,
) -> Vec<Case> {
    let field = &hash.field;
    let constants = || Constants::new().set(0, LEAVES as u32);
    let case = |kernel: String| {
        let constants = match corpus {
            MIDEN => constants(),
            _ => constants().set(1, 1_u32).set(2, LEAVES as u32),
        };
        Case::new(corpus.0, corpus.1, format!("{name}_{kernel}_{SUFFIX}")).constants(constants)
    };
    let some = |words: Vec<u64>| -> Vec<Option<u64>> { words.into_iter().map(Some).collect() };
    let memory = |threads: usize| 8 * 2 * WIDTH * threads;
    // Rows of eight elements are absorbed into sponges whose capacity is not zero.
    let (absorbed, before) = (WIDTH - CAPACITY, field.samples(COUNT * CAPACITY, 3));
    let rows = field.samples(COUNT * absorbed, 5);
    let states: Vec<Vec<Value>> = (0..COUNT)
        .map(|i| {
            let mut state = [&before[i * CAPACITY..][..CAPACITY], &rows[i * absorbed..][..absorbed]].concat();
            permute(hash, &mut state);
            state
        })
        .collect();
    let part = |from: usize| -> Vec<u64> {
        states.iter().flat_map(|state| field.words(&state[from..][..DIGEST])).collect()
    };
    let (kept, digests) = (part(0), part(CAPACITY));
    let columns = |k: usize| -> Vec<u64> {
        (0..COUNT).flat_map(|i| field.words(&rows[i * absorbed + k..][..1])).collect()
    };
    let before = guarded(&field.words(&before));
    let by_columns =
        (0..absorbed).fold(case("256_absorb_columns_and_permute".into()), |case, k| case.input(&columns(k)));
    // A tree of digests: the root is the first node, children of node i are 2i and 2i + 1.
    let leaves: Vec<u64> =
        Sequence(7).any::<u64>(LEAVES * DIGEST).into_iter().map(|word| word % MODULUS).collect();
    let leaves: Vec<Value> = leaves.into_iter().map(|word| vec![[word, 0, 0, 0]]).collect();
    let parents = |children: &[Value]| -> Vec<Value> {
        children
            .chunks(2 * DIGEST)
            .flat_map(|pair| {
                let mut state = [&vec![field.constant(ZERO); CAPACITY][..], pair].concat();
                permute(hash, &mut state);
                state[CAPACITY..][..DIGEST].to_vec()
            })
            .collect()
    };
    let first = parents(&leaves);
    let second = parents(&first);
    let mut tree = vec![None; LEAVES / 2 * DIGEST];
    tree.extend(some(field.words(&first)));
    let mut nodes = vec![u64::MAX; LEAVES / 2 * DIGEST];
    nodes.extend(field.words(&first));
    let mut above = vec![None; LEAVES / 4 * DIGEST];
    above.extend(some(field.words(&second)));
    above.extend(vec![None; LEAVES / 2 * DIGEST]);
    vec![
        by_columns
            .updated(&before, &some(kept.clone()))
            .full_output(digests.clone())
            .threadgroup(memory(COUNT))
            .threads(COUNT, COUNT),
        case("256_absorb_rows_and_permute".into())
            .input(&field.words(&rows))
            .updated(&before, &some(kept))
            .full_output(digests)
            .threadgroup(memory(COUNT))
            .threads(COUNT, COUNT),
        case("128_gen_merkle_nodes_first_row".into())
            .input(&field.words(&leaves))
            .output(&tree)
            .threadgroup(memory(LEAVES / 2))
            .threads(LEAVES / 2, LEAVES / 2),
        case("128_gen_merkle_nodes_row".into())
            .updated(&guarded(&nodes), &above)
            .value([2_u32])
            .threadgroup(memory(LEAVES / 4))
            .threads(LEAVES / 4, LEAVES / 4),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shake256_of_nothing() {
        // NIST's example of the empty message.
        assert_eq!(shake256(b"", 200)[..4], [0x46, 0xb9, 0xdd, 0x2b]);
    }

    #[test]
    fn the_powers_are_inverse() {
        let hash = Rescue::new();
        let mut state = hash.field.samples(WIDTH, 11);
        let before = state.clone();
        hash.power(&mut state, 7);
        hash.power(&mut state, INVERSE);
        assert_eq!(state, before);
    }
}
