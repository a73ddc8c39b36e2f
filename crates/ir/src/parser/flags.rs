//! The flags of instructions: which words each operation accepts.

use super::{Parser, Result};
use crate::model::{BinaryOp, CastOp};

pub(super) const FAST_MATH: &[&str] = &["fast", "nnan", "ninf", "nsz", "arcp", "contract", "afn", "reassoc"];

pub(super) fn of_binary(op: BinaryOp) -> &'static [&'static str] {
    use BinaryOp::*;
    match op {
        Add | Sub | Mul | Shl => &["nuw", "nsw"],
        UDiv | SDiv | LShr | AShr => &["exact"],
        Or => &["disjoint"],
        URem | SRem | And | Xor => &[],
        FAdd | FSub | FMul | FDiv | FRem => FAST_MATH,
    }
}

pub(super) fn of_cast(op: CastOp) -> &'static [&'static str] {
    use CastOp::*;
    match op {
        Trunc => &["nuw", "nsw"],
        ZExt | UiToFp => &["nneg"],
        FpTrunc | FpExt => FAST_MATH,
        SExt | FpToUi | FpToSi | SiToFp | PtrToInt | IntToPtr | BitCast | AddrSpaceCast => &[],
    }
}

impl Parser<'_> {
    /// The words of `accepted` that follow, one space between them.
    pub(super) fn flags(&mut self, accepted: &[&str]) -> String {
        let start = self.at;
        while self.peek().kind == crate::lexer::Kind::Word && accepted.contains(&self.text()) {
            self.advance();
        }
        (start..self.at).map(|i| self.slice(i, i + 1)).collect::<Vec<_>>().join(" ")
    }

    /// The flags of a `getelementptr`; `inrange(…)` belongs to constants only.
    pub(super) fn gep_flags(&mut self, constant: bool) -> Result<String> {
        let mut flags = self.flags(&["inbounds", "nusw", "nuw"]);
        if constant && self.is_word("inrange") {
            let start = self.at;
            self.advance();
            self.skip_group()?;
            if !flags.is_empty() {
                flags.push(' ');
            }
            flags.push_str(self.slice(start, self.at));
        }
        Ok(flags)
    }
}
