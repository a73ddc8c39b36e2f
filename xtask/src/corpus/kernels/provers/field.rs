//! Prime fields and their extensions, for references of provers: plain arithmetic modulo p, and the Montgomery form of elements.
//!
//! Products are remainders if two words hold them, and sums of doublings if not. A kernel's elements are compared in the form that it
//! stores, x·R mod p with R = 2³² for one word of 32 bits and 2⁶⁴ⁿ for n words of 64 bits.

use crate::corpus::kernels::element::Sequence;

/// A number below 2²⁵⁶, least significant word first.
pub type Number = [u64; 4];
/// An element: the coefficients of a polynomial, one for a prime field.
pub type Value = Vec<Number>;

pub const ZERO: Number = [0; 4];
pub const ONE: Number = [1, 0, 0, 0];

/// A field of polynomials modulo Xⁿ = `residue`.
pub struct Field {
    pub modulus: Number,
    /// Number of bits of R.
    pub bits: usize,
    pub degree: usize,
    pub residue: u64,
}

impl Field {
    pub const fn prime(modulus: Number, bits: usize) -> Self {
        Self { modulus, bits, degree: 1, residue: 0 }
    }

    pub fn add_numbers(&self, a: &Number, b: &Number) -> Number {
        let (sum, carry) = add(a, b);
        let (reduced, borrow) = sub(&sum, &self.modulus);
        if carry || !borrow { reduced } else { sum }
    }

    pub fn negate_number(&self, a: &Number) -> Number {
        if *a == ZERO { ZERO } else { sub(&self.modulus, a).0 }
    }

    pub fn multiply_numbers(&self, a: &Number, b: &Number) -> Number {
        if self.modulus[1..] == [0; 3] {
            let product = u128::from(a[0]) * u128::from(b[0]);
            return [(product % u128::from(self.modulus[0])) as u64, 0, 0, 0];
        }
        let mut product = ZERO;
        for bit in (0..256).rev().skip_while(|bit| b[bit / 64] >> (bit % 64) & 1 == 0) {
            product = self.add_numbers(&product, &product);
            if b[bit / 64] >> (bit % 64) & 1 == 1 {
                product = self.add_numbers(&product, a);
            }
        }
        product
    }

    /// An element of the prime field.
    pub fn constant(&self, number: Number) -> Value {
        let mut value = vec![ZERO; self.degree];
        value[0] = number;
        value
    }

    pub fn add(&self, a: &Value, b: &Value) -> Value {
        let at = |value: &Value, k| value.get(k).copied().unwrap_or(ZERO);
        (0..self.degree).map(|k| self.add_numbers(&at(a, k), &at(b, k))).collect()
    }

    pub fn negate(&self, a: &Value) -> Value {
        a.iter().map(|number| self.negate_number(number)).collect()
    }

    pub fn subtract(&self, a: &Value, b: &Value) -> Value {
        self.add(a, &self.negate(b))
    }

    /// The product of two polynomials, reduced.
    pub fn multiply(&self, a: &Value, b: &Value) -> Value {
        let mut product = vec![ZERO; self.degree];
        for (i, x) in a.iter().enumerate() {
            for (j, y) in b.iter().enumerate() {
                let mut term = self.multiply_numbers(x, y);
                if i + j >= self.degree {
                    term = self.multiply_numbers(&term, &[self.residue, 0, 0, 0]);
                }
                let place = (i + j) % self.degree;
                product[place] = self.add_numbers(&product[place], &term);
            }
        }
        product
    }

    pub fn power(&self, a: &Value, exponent: &Number) -> Value {
        let mut power = self.constant(ONE);
        for bit in (0..256).rev().skip_while(|bit| exponent[bit / 64] >> (bit % 64) & 1 == 0) {
            power = self.multiply(&power, &power);
            if exponent[bit / 64] >> (bit % 64) & 1 == 1 {
                power = self.multiply(&power, a);
            }
        }
        power
    }

    /// The inverse in the prime field, by Fermat's theorem.
    pub fn inverse(&self, a: &Value) -> Value {
        self.power(a, &sub(&self.modulus, &[2, 0, 0, 0]).0)
    }

    /// A root of unity of order 2ᵏ, from a number that is no square.
    pub fn root(&self, non_residue: u64, order_bits: u32) -> Value {
        let mut exponent = sub(&self.modulus, &ONE).0;
        for _ in 0..order_bits {
            exponent = half(&exponent);
        }
        self.power(&self.constant([non_residue, 0, 0, 0]), &exponent)
    }

    /// Elements, among them 0, 1 and -1.
    pub fn samples(&self, count: usize, seed: u64) -> Vec<Value> {
        let mut sequence = Sequence(seed);
        let mut number = || {
            let mut number: Number = std::array::from_fn(|_| sequence.next());
            for (word, top) in number.iter_mut().zip(self.modulus).rev() {
                // Below the modulus: its highest word bounds the number's.
                if top == 0 {
                    *word = 0;
                } else {
                    *word %= top;
                    break;
                }
            }
            number
        };
        let mut samples: Vec<Value> =
            (0..count).map(|_| (0..self.degree).map(|_| number()).collect()).collect();
        for (sample, special) in samples.iter_mut().zip([ZERO, ONE, self.negate_number(&ONE)]) {
            *sample = self.constant(special);
        }
        samples
    }

    /// The Montgomery form of a number.
    pub fn montgomery(&self, number: &Number) -> Number {
        (0..self.bits).fold(*number, |x, _| self.add_numbers(&x, &x))
    }

    /// The words of 64 bits that a kernel stores for elements.
    pub fn words(&self, values: &[Value]) -> Vec<u64> {
        let count = self.bits / 64;
        values.iter().flatten().flat_map(|x| self.montgomery(x)[..count].to_vec()).collect()
    }

    /// The words of 32 bits that a kernel stores for elements of one word.
    pub fn short_words(&self, values: &[Value]) -> Vec<u32> {
        values.iter().flatten().map(|x| self.montgomery(x)[0] as u32).collect()
    }
}

fn add(a: &Number, b: &Number) -> (Number, bool) {
    carried(a, b, u64::overflowing_add)
}

fn sub(a: &Number, b: &Number) -> (Number, bool) {
    carried(a, b, u64::overflowing_sub)
}

/// Combines digits, from the lowest; `step` carries to the next one.
fn carried(a: &Number, b: &Number, step: fn(u64, u64) -> (u64, bool)) -> (Number, bool) {
    let mut carry = false;
    let digits = std::array::from_fn(|k| {
        let (x, first) = step(a[k], b[k]);
        let (x, second) = step(x, carry.into());
        carry = first | second;
        x
    });
    (digits, carry)
}

fn half(a: &Number) -> Number {
    std::array::from_fn(|k| a[k] >> 1 | a.get(k + 1).map_or(0, |next| next << 63))
}

/// The lowest `bits` bits of an index in reverse order.
pub fn reversed(index: usize, bits: u32) -> usize {
    if bits == 0 { index } else { index.reverse_bits() >> (usize::BITS - bits) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_modulo_seventeen() {
        let field = Field::prime([17, 0, 0, 0], 64);
        let number = |n: u64| vec![[n, 0, 0, 0]];
        assert_eq!(field.add(&number(9), &number(12)), number(4));
        assert_eq!(field.subtract(&number(3), &number(5)), number(15));
        assert_eq!(field.multiply(&number(7), &number(13)), number(6));
        assert_eq!(field.power(&number(3), &[16, 0, 0, 0]), number(1));
        assert_eq!(field.inverse(&number(5)), number(7));
        assert_eq!(field.root(3, 4), number(3));
        assert_eq!(field.root(3, 1), number(16));
        // 2⁶⁴ = (2⁴)¹⁶ = 1 modulo 17.
        assert_eq!(field.montgomery(&[5, 0, 0, 0]), [5, 0, 0, 0]);
    }

    #[test]
    fn large_numbers_and_extensions() {
        let modulus = [1, 0, 0, 0x0800_0000_0000_0011];
        let field = Field::prime(modulus, 256);
        for value in field.samples(6, 3).iter().skip(1) {
            assert_eq!(field.multiply(value, &field.inverse(value)), field.constant(ONE));
        }
        let cubic = Field { degree: 3, residue: 2, ..Field::prime([17, 0, 0, 0], 64) };
        let x = vec![ZERO, ONE, ZERO];
        assert_eq!(cubic.power(&x, &[4, 0, 0, 0]), vec![ZERO, [2, 0, 0, 0], ZERO]);
        assert_eq!(reversed(6, 3), 3);
    }
}
