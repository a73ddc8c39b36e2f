//! The qualifier `coherent`.

use super::Rewriter;

impl Rewriter<'_> {
    /// `coherent` or `coherent(scope)` at `i`: accesses to the object are volatile, so that they are neither moved nor merged, and have
    /// system scope on NVIDIA GPUs. Any other use of the word is an identifier.
    pub(super) fn coherent(&mut self, i: usize) -> usize {
        let scoped =
            self.tokens.spelling(i + 1) == "(" && matches!(self.tokens.spelling(i + 2), "device" | "system");
        let behind = match scoped {
            true => self.tokens.after_group(i + 1).unwrap_or(i + 1),
            false => i + 1,
        };
        let qualifies =
            |t: usize| matches!(self.tokens.spelling(t), "const" | "volatile") || self.is_address_space(t);
        let other = (behind..behind + 8).take_while(|t| qualifies(*t));
        let before = (0..i).rev().take(8).take_while(|t| qualifies(*t));
        let mut qualifiers = before.chain(other).peekable();
        if !scoped && qualifiers.peek().is_none() {
            return i + 1;
        }
        // Twice the same qualifier would be a warning.
        let is_volatile = qualifiers.any(|t| self.tokens.spelling(t) == "volatile");
        self.edit(i, behind, if is_volatile { "" } else { "volatile" }.to_owned());
        behind
    }
}
