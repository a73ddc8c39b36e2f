//! Reduces kernels while their difference remains.

use crate::generate::{Kernel, Statement};

/// Take out statements, one after the other, as long as `differs` holds for what is left.
pub fn shrink(kernel: &Kernel, differs: &mut dyn FnMut(&Kernel) -> bool) -> Kernel {
    let mut best = kernel.clone();
    let mut at = 0;
    // From the front, so that whole loops and branches go before what they hold.
    while let Some(smaller) = without(&best, at) {
        if differs(&smaller) {
            best = smaller;
        } else {
            at += 1;
        }
    }
    best
}

/// The kernel without its statement number `at`; `None` behind the last.
fn without(kernel: &Kernel, at: usize) -> Option<Kernel> {
    let mut smaller = kernel.clone();
    let mut left = at;
    let helpers = smaller.helpers.iter_mut().map(|(_, body)| (body, 1));
    for (body, kept) in std::iter::once((&mut smaller.body, 0)).chain(helpers) {
        if remove(body, &mut left, kept) {
            return Some(smaller);
        }
    }
    None
}

/// Remove the statement that is `left` away; the last `kept` of the list stay.
fn remove(body: &mut Vec<Statement>, left: &mut usize, kept: usize) -> bool {
    for index in 0..body.len().saturating_sub(kept) {
        if *left == 0 {
            body.remove(index);
            return true;
        }
        *left -= 1;
        if body[index].parts.iter_mut().any(|(_, inner)| remove(inner, left, 0)) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_matters_stays() {
        let kernel = Kernel::random(3);
        let before = kernel.text().len();
        let smallest = shrink(&kernel, &mut |_| true);
        assert!(smallest.text().len() < before);
        assert!(smallest.body.is_empty());
        let unchanged = shrink(&kernel, &mut |_| false);
        assert_eq!(unchanged.text(), kernel.text());
    }
}
