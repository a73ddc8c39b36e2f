//! Functions that the host can put into a `visible_function_table`: those with `[[visible]]` or `[[stitchable]]`.

use crate::lex::token_buffer::TokenBuffer;
use crate::rewrite::attributes::Attribute;

/// Replaces the attributes: keeps a function that no code refers to.
pub(super) const KEPT: &str = " __attribute__((used)) ";

/// The name of the function whose declaration continues at token `behind`, if these attributes make it visible.
pub(super) fn name(attributes: &[Attribute], tokens: &TokenBuffer, behind: usize) -> Option<String> {
    attributes.iter().find(|a| matches!(a.name.as_str(), "visible" | "stitchable"))?;
    let declares = |token: &usize| !matches!(tokens.spelling(*token), "" | ";" | "{" | "}");
    let parameters = (behind..).take_while(declares).find(|token| tokens.spelling(*token) == "(")?;
    let name = tokens.spelling(parameters.checked_sub(1).filter(|name| *name >= behind)?);
    let is_name = name.starts_with(|c: char| c.is_alphabetic() || c == '_');
    is_name.then(|| name.to_owned())
}
