//! A tokenized text with matching brackets, which the rewriter walks over.

use crate::lex::{Token, TokenKind, tokenize};

/// Longest template list in tokens; bounds the search in text with many `<` and no `>`.
const LONGEST_LIST: usize = 1024;

/// A tokenized text. Positions are token indices; an index at or after the end is an empty token.
pub(crate) struct TokenBuffer<'a> {
    pub text: &'a str,
    pub tokens: Vec<Token>,
    /// For each bracket its match.
    partner: Vec<Option<usize>>,
}

impl<'a> TokenBuffer<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let tokens = tokenize(text);
        let mut partner = vec![None; tokens.len()];
        let mut open: Vec<usize> = Vec::new();
        for (i, token) in tokens.iter().enumerate() {
            if token.kind != TokenKind::Punctuator {
                continue;
            }
            match &text[token.start..token.end] {
                "(" | "[" | "{" => open.push(i),
                closing @ (")" | "]" | "}") => {
                    let wanted = match closing {
                        ")" => "(",
                        "]" => "[",
                        _ => "{",
                    };
                    let is_wanted = |&o: &usize| &text[tokens[o].start..tokens[o].end] == wanted;
                    // Unbalanced text is diagnosed by clang.
                    if let Some(o) = open.pop_if(|o| is_wanted(o)) {
                        partner[o] = Some(i);
                        partner[i] = Some(o);
                    }
                }
                _ => {}
            }
        }
        Self { text, tokens, partner }
    }

    pub(crate) fn len(&self) -> usize {
        self.tokens.len()
    }

    /// The text of token `i`.
    pub(crate) fn spelling(&self, i: usize) -> &'a str {
        self.tokens.get(i).map_or("", |t| &self.text[t.start..t.end])
    }

    pub(crate) fn kind(&self, i: usize) -> Option<TokenKind> {
        self.tokens.get(i).map(|t| t.kind)
    }

    pub(crate) fn is_identifier(&self, i: usize) -> bool {
        self.kind(i) == Some(TokenKind::Identifier)
    }

    /// Offset of token `i`, or of the end of the text.
    pub(crate) fn start(&self, i: usize) -> usize {
        self.tokens.get(i).map_or(self.text.len(), |t| t.start)
    }

    /// The text of the tokens `from..to`, with what is between them.
    pub(crate) fn source_text(&self, from: usize, to: usize) -> &'a str {
        if from >= to || from >= self.len() {
            return "";
        }
        &self.text[self.tokens[from].start..self.tokens[to.min(self.len()) - 1].end]
    }

    /// The match of the bracket at `i`.
    pub(crate) fn matching_bracket(&self, i: usize) -> Option<usize> {
        self.partner.get(i).copied().flatten()
    }

    /// The token after the bracket group that opens at `i`.
    pub(crate) fn after_group(&self, i: usize) -> Option<usize> {
        self.matching_bracket(i).filter(|&p| p > i).map(|p| p + 1)
    }

    /// The token after the template list that opens at `i`.
    pub(crate) fn after_template_list(&self, i: usize) -> Option<usize> {
        if self.spelling(i) != "<" {
            return None;
        }
        let (mut depth, mut at) = (0usize, i);
        while at < self.len().min(i + LONGEST_LIST) {
            match self.spelling(at) {
                "<" => depth += 1,
                ">" => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(at + 1);
                    }
                }
                "(" | "[" | "{" => {
                    at = self.after_group(at)?;
                    continue;
                }
                ";" | ")" | "]" | "}" => return None,
                _ => {}
            }
            at += 1;
        }
        None
    }

    /// The token after the attribute list `[[…]]` that opens at `i`, if one does. As in C++, there may be white space between the
    /// brackets: nothing but an attribute list begins with two.
    pub(crate) fn after_attribute_list(&self, i: usize) -> Option<usize> {
        if self.spelling(i) != "[" || self.spelling(i + 1) != "[" {
            return None;
        }
        let (outer, inner) = (self.matching_bracket(i)?, self.matching_bracket(i + 1)?);
        (outer == inner + 1).then_some(outer + 1)
    }

    /// Split a token range at top-level commas.
    pub(crate) fn split_commas(&self, from: usize, to: usize) -> Vec<(usize, usize)> {
        let (mut parts, mut begin, mut at) = (Vec::new(), from, from);
        while at < to {
            match self.spelling(at) {
                "(" | "[" | "{" => at = self.after_group(at).unwrap_or(at + 1),
                "<" => at = self.after_template_list(at).filter(|&e| e <= to).unwrap_or(at + 1),
                "," => {
                    parts.push((begin, at));
                    at += 1;
                    begin = at;
                }
                _ => at += 1,
            }
        }
        if begin < to {
            parts.push((begin, to));
        }
        parts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn brackets_angles_and_commas() {
        let tokens = TokenBuffer::new("f<a, g<b>>(x, {y, z}, v<1, (2 > 1)> w [[buffer(0)]])");
        let open = (0..tokens.len()).find(|&i| tokens.spelling(i) == "(").unwrap();
        assert_eq!(tokens.after_template_list(1), Some(open));
        assert_eq!(tokens.after_group(open), Some(tokens.len()));
        let parts = tokens.split_commas(open + 1, tokens.len() - 1);
        let texts: Vec<_> = parts.iter().map(|&(a, b)| tokens.source_text(a, b)).collect();
        assert_eq!(texts, ["x", "{y, z}", "v<1, (2 > 1)> w [[buffer(0)]]"]);
        let list = (0..tokens.len()).find(|&i| tokens.after_attribute_list(i).is_some()).unwrap();
        assert_eq!(tokens.after_attribute_list(list), Some(tokens.len() - 1));
        for text in ["([a])", "[(a)]", "[ [a]]", "[[a] ]"] {
            let is_list = text.starts_with("[[") || text.starts_with("[ [");
            assert_eq!(TokenBuffer::new(text).after_attribute_list(0).is_some(), is_list, "{text}");
        }
    }

    #[test]
    fn nothing_behind_the_last_comma_is_no_part() {
        for (text, expected) in
            [("()", &[][..]), ("(x)", &["x"]), ("(x, y,)", &["x", "y"]), ("(, y)", &["", "y"])]
        {
            let tokens = TokenBuffer::new(text);
            let parts = tokens.split_commas(1, tokens.len() - 1);
            let parts: Vec<_> =
                parts.iter().map(|&(a, b)| if a < b { tokens.source_text(a, b) } else { "" }).collect();
            assert_eq!(parts, expected, "{text}");
        }
        assert_eq!(TokenBuffer::new(", a").split_commas(0, 0), []);
    }

    #[test]
    fn unbalanced_text_is_no_trouble() {
        for text in ["(]", "}}", "[[", "<<<", "f<(", "[[a]", "( { )"] {
            let tokens = TokenBuffer::new(text);
            for i in 0..tokens.len() + 2 {
                let _ = (
                    tokens.after_group(i),
                    tokens.after_template_list(i),
                    tokens.after_attribute_list(i),
                    tokens.split_commas(i, 9),
                );
            }
        }
    }
}
