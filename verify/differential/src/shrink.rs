//! Reduces kernels while their difference remains.

use crate::generate::{Kernel, Statement};

/// Removes statements one by one while `differs` holds for the rest.
pub fn shrink(kernel: &Kernel, differs: &mut dyn FnMut(&Kernel) -> bool) -> Kernel {
    let mut best = kernel.clone();
    let mut at = 0;
    // From the front, so that loops and branches are removed before their contents.
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

/// Removes the statement at distance `left`; the last `kept` statements of the list are kept.
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
