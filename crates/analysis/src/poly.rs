//! Polynomials over positions, sizes, arguments and loop counters: the symbolic form of integers and addresses.
//!
//! Arithmetic is over the integers: a form describes a value as long as the kernel's own arithmetic does not wrap.

use std::collections::BTreeMap;

use elinvar_ir::ValueId;

/// The object that an address points into.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Root {
    /// Memory of the argument with this index.
    Argument(usize),
    /// A variable of the module.
    Global(String),
    /// A variable of the thread.
    Private(ValueId),
}

/// An unknown of a polynomial.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Symbol {
    /// The address of an object.
    Base(Root),
    /// `thread_position_in_threadgroup`, by dimension.
    Thread(u8),
    /// `thread_index_in_simdgroup`.
    Lane,
    /// `simdgroup_index_in_threadgroup`.
    Simdgroup,
    /// `threadgroup_position_in_grid`.
    Group(u8),
    /// `threads_per_threadgroup`.
    GroupSize(u8),
    /// `dispatch_threads_per_threadgroup`.
    FullGroupSize(u8),
    /// `threads_per_grid`.
    Grid(u8),
    /// `threadgroups_per_grid`.
    Groups(u8),
    /// A number in the memory of a `constant` argument, at an offset in bytes.
    Scalar(usize, i128),
    /// The number of completed iterations of a loop.
    Iteration(usize),
    /// Any other value.
    Value(ValueId),
}

/// Terms of more factors are not formed.
const MAX_DEGREE: usize = 4;
/// Polynomials of more terms are not formed.
const MAX_TERMS: usize = 32;

/// A sum of products of symbols with integer coefficients.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Poly {
    terms: BTreeMap<Vec<Symbol>, i128>,
}

impl Poly {
    pub fn constant(value: i128) -> Self {
        let mut poly = Self::default();
        poly.add_term(Vec::new(), value);
        poly
    }

    pub fn symbol(symbol: Symbol) -> Self {
        Self { terms: BTreeMap::from([(vec![symbol], 1)]) }
    }

    fn add_term(&mut self, factors: Vec<Symbol>, coefficient: i128) {
        let sum = self.terms.get(&factors).copied().unwrap_or(0).wrapping_add(coefficient);
        match sum {
            0 => self.terms.remove(&factors),
            sum => self.terms.insert(factors, sum),
        };
    }

    /// `self + other * factor`; `None` if it has too many terms.
    pub fn plus(&self, other: &Self, factor: i128) -> Option<Self> {
        let mut sum = self.clone();
        for (factors, coefficient) in &other.terms {
            sum.add_term(factors.clone(), coefficient.wrapping_mul(factor));
        }
        (sum.terms.len() <= MAX_TERMS).then_some(sum)
    }

    /// The product; `None` if it has too many terms or factors.
    pub fn times(&self, other: &Self) -> Option<Self> {
        let mut product = Self::default();
        for (a, x) in &self.terms {
            for (b, y) in &other.terms {
                let mut factors = [a.as_slice(), b.as_slice()].concat();
                if factors.len() > MAX_DEGREE {
                    return None;
                }
                factors.sort();
                product.add_term(factors, x.wrapping_mul(*y));
            }
        }
        (product.terms.len() <= MAX_TERMS).then_some(product)
    }

    /// The products' factors and coefficients.
    pub fn terms(&self) -> impl Iterator<Item = (&[Symbol], i128)> {
        self.terms.iter().map(|(factors, coefficient)| (factors.as_slice(), *coefficient))
    }

    /// The value, if it has no symbol.
    pub fn as_constant(&self) -> Option<i128> {
        match self.terms.len() {
            0 => Some(0),
            1 => self.terms.get(&Vec::new()).copied(),
            _ => None,
        }
    }

    /// The term without symbols.
    pub fn constant_term(&self) -> i128 {
        self.terms.get(&Vec::new()).copied().unwrap_or(0)
    }

    /// The terms without those that contain a symbol that `drop` selects.
    pub fn without(&self, drop: impl Fn(&Symbol) -> bool) -> Self {
        let kept = self.terms.iter().filter(|(factors, _)| !factors.iter().any(&drop));
        Self { terms: kept.map(|(factors, coefficient)| (factors.clone(), *coefficient)).collect() }
    }

    /// The coefficient of a symbol; `None` if it is a factor of a term more than once.
    pub fn coefficient(&self, symbol: &Symbol) -> Option<Self> {
        let mut sum = Self::default();
        for (factors, coefficient) in &self.terms {
            let Some(at) = factors.iter().position(|factor| factor == symbol) else { continue };
            let mut rest = factors.clone();
            rest.remove(at);
            if rest.contains(symbol) {
                return None;
            }
            sum.add_term(rest, *coefficient);
        }
        Some(sum)
    }

    /// Whether all coefficients are multiples of a power of two, and so its lower bits are 0.
    pub fn is_multiple_of(&self, power: u128) -> bool {
        power.is_power_of_two()
            && self.terms.values().all(|coefficient| coefficient.unsigned_abs().is_multiple_of(power))
    }

    /// The quotient by a power of two; `None` if a coefficient is no multiple of it.
    pub fn divided(&self, power: u128) -> Option<Self> {
        let divisor = i128::try_from(power).ok().filter(|_| self.is_multiple_of(power))?;
        let terms = self.terms.iter().map(|(factors, coefficient)| (factors.clone(), coefficient / divisor));
        Some(Self { terms: terms.collect() })
    }

    /// All symbols, with repetitions.
    pub fn symbols(&self) -> impl Iterator<Item = &Symbol> {
        self.terms.keys().flatten()
    }

    /// The object that it points into, if it is one object's address and an offset.
    pub fn root(&self) -> Option<&Root> {
        let mut bases = self.terms.iter().filter(|(factors, _)| factors.iter().any(is_base));
        let (factors, coefficient) = bases.next()?;
        match (factors.as_slice(), coefficient, bases.next()) {
            ([Symbol::Base(root)], 1, None) => Some(root),
            _ => None,
        }
    }

    /// As text, with names for its symbols.
    pub fn text(&self, name: impl Fn(&Symbol) -> String) -> String {
        let mut text = String::new();
        // Constants last.
        let (constant, terms): (Vec<_>, Vec<_>) =
            self.terms.iter().partition(|(factors, _)| factors.is_empty());
        for (factors, coefficient) in terms.into_iter().chain(constant) {
            let sign = match (text.is_empty(), *coefficient < 0) {
                (true, false) => "",
                (true, true) => "-",
                (false, false) => " + ",
                (false, true) => " - ",
            };
            let size = coefficient.unsigned_abs();
            let mut parts: Vec<String> = factors.iter().map(&name).collect();
            if size != 1 || parts.is_empty() {
                parts.insert(0, size.to_string());
            }
            text += sign;
            text += &parts.join("*");
        }
        if text.is_empty() { "0".into() } else { text }
    }
}

fn is_base(symbol: &Symbol) -> bool {
    matches!(symbol, Symbol::Base(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_products_and_coefficients() {
        let x = Poly::symbol(Symbol::Thread(0));
        let n = Poly::symbol(Symbol::Scalar(1, 0));
        let address = x.times(&n).unwrap().plus(&x, 4).unwrap().plus(&Poly::constant(12), 1).unwrap();
        let name = |s: &Symbol| if *s == Symbol::Thread(0) { "x".to_owned() } else { "n".to_owned() };
        assert_eq!(address.text(name), "4*x + x*n + 12");
        assert_eq!(address.coefficient(&Symbol::Thread(0)).unwrap().text(name), "n + 4");
        assert_eq!(address.plus(&address, -1).unwrap().as_constant(), Some(0));
        assert_eq!(x.times(&x).unwrap().coefficient(&Symbol::Thread(0)), None, "not affine");
        assert_eq!(address.without(|s| *s == Symbol::Thread(0)).as_constant(), Some(12));
    }

    #[test]
    fn a_root_is_one_object() {
        let base = |index| Poly::symbol(Symbol::Base(Root::Argument(index)));
        let address = base(2).plus(&Poly::symbol(Symbol::Lane), 4).unwrap();
        assert_eq!(address.root(), Some(&Root::Argument(2)));
        assert_eq!(base(1).plus(&base(2), 1).unwrap().root(), None);
        assert_eq!(base(1).times(&Poly::constant(2)).unwrap().root(), None);
    }
}
