//! Tokens of a source with their matching brackets: what the rewriter walks over.

use crate::lex::{Kind, Token, tokenize};

/// Template lists longer than this many tokens are not looked for, so that text with many `<` and no `>`
/// takes linear time.
const LONGEST_LIST: usize = 1024;

/// A tokenised text. Positions are token indices; any index at or behind the end reads as empty.
pub(crate) struct Code<'a> {
    pub text: &'a str,
    pub tokens: Vec<Token>,
    /// For each bracket its partner.
    partner: Vec<Option<usize>>,
}

impl<'a> Code<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        let tokens = tokenize(text);
        let mut partner = vec![None; tokens.len()];
        let mut open: Vec<usize> = Vec::new();
        for (i, token) in tokens.iter().enumerate() {
            if token.kind != Kind::Punct {
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
                    // Unbalanced text is clang's to diagnose; a wrong closer is left without partner.
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
    pub(crate) fn at(&self, i: usize) -> &'a str {
        self.tokens.get(i).map_or("", |t| &self.text[t.start..t.end])
    }

    pub(crate) fn kind(&self, i: usize) -> Option<Kind> {
        self.tokens.get(i).map(|t| t.kind)
    }

    pub(crate) fn is_word(&self, i: usize) -> bool {
        self.kind(i) == Some(Kind::Word)
    }

    /// The first byte of token `i`, or the end of the text.
    pub(crate) fn start(&self, i: usize) -> usize {
        self.tokens.get(i).map_or(self.text.len(), |t| t.start)
    }

    /// The text from token `from` to before token `to`, as it stands.
    pub(crate) fn slice(&self, from: usize, to: usize) -> &'a str {
        if from >= to || from >= self.len() {
            return "";
        }
        &self.text[self.tokens[from].start..self.tokens[to.min(self.len()) - 1].end]
    }

    /// The partner of the bracket at `i`.
    pub(crate) fn partner(&self, i: usize) -> Option<usize> {
        self.partner.get(i).copied().flatten()
    }

    /// The token behind the bracket group that opens at `i`.
    pub(crate) fn behind(&self, i: usize) -> Option<usize> {
        self.partner(i).filter(|&p| p > i).map(|p| p + 1)
    }

    /// The token behind the template list whose `<` is at `i`.
    pub(crate) fn behind_angles(&self, i: usize) -> Option<usize> {
        if self.at(i) != "<" {
            return None;
        }
        let (mut depth, mut at) = (0usize, i);
        while at < self.len().min(i + LONGEST_LIST) {
            match self.at(at) {
                "<" => depth += 1,
                ">" => {
                    depth -= 1;
                    if depth == 0 {
                        return Some(at + 1);
                    }
                }
                "(" | "[" | "{" => {
                    at = self.behind(at)?;
                    continue;
                }
                ";" | ")" | "]" | "}" => return None,
                _ => {}
            }
            at += 1;
        }
        None
    }

    /// Whether an attribute list `[[…]]` opens at `i`: then the token behind it.
    pub(crate) fn behind_attributes(&self, i: usize) -> Option<usize> {
        if self.at(i) != "[" || self.at(i + 1) != "[" || self.start(i + 1) != self.start(i) + 1 {
            return None;
        }
        let (outer, inner) = (self.partner(i)?, self.partner(i + 1)?);
        (outer == inner + 1).then_some(outer + 1)
    }

    /// Split a token range at its top-level commas.
    pub(crate) fn split_commas(&self, from: usize, to: usize) -> Vec<(usize, usize)> {
        let (mut parts, mut begin, mut at) = (Vec::new(), from, from);
        while at < to {
            match self.at(at) {
                "(" | "[" | "{" => at = self.behind(at).unwrap_or(at + 1),
                "<" => at = self.behind_angles(at).filter(|&e| e <= to).unwrap_or(at + 1),
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
        let code = Code::new("f<a, g<b>>(x, {y, z}, v<1, (2 > 1)> w [[buffer(0)]])");
        let open = (0..code.len()).find(|&i| code.at(i) == "(").unwrap();
        assert_eq!(code.behind_angles(1), Some(open));
        assert_eq!(code.behind(open), Some(code.len()));
        let parts = code.split_commas(open + 1, code.len() - 1);
        let texts: Vec<_> = parts.iter().map(|&(a, b)| code.slice(a, b)).collect();
        assert_eq!(texts, ["x", "{y, z}", "v<1, (2 > 1)> w [[buffer(0)]]"]);
        let list = (0..code.len()).find(|&i| code.behind_attributes(i).is_some()).unwrap();
        assert_eq!(code.behind_attributes(list), Some(code.len() - 1));
        for text in ["([a])", "[(a)]", "[ [a]]", "[[a] ]"] {
            let is_list = text.starts_with("[[");
            assert_eq!(Code::new(text).behind_attributes(0).is_some(), is_list, "{text}");
        }
    }

    #[test]
    fn nothing_behind_the_last_comma_is_no_part() {
        for (text, expected) in
            [("()", &[][..]), ("(x)", &["x"]), ("(x, y,)", &["x", "y"]), ("(, y)", &["", "y"])]
        {
            let code = Code::new(text);
            let parts = code.split_commas(1, code.len() - 1);
            let parts: Vec<_> =
                parts.iter().map(|&(a, b)| if a < b { code.slice(a, b) } else { "" }).collect();
            assert_eq!(parts, expected, "{text}");
        }
        assert_eq!(Code::new(", a").split_commas(0, 0), []);
    }

    #[test]
    fn unbalanced_text_is_no_trouble() {
        for text in ["(]", "}}", "[[", "<<<", "f<(", "[[a]", "( { )"] {
            let code = Code::new(text);
            for i in 0..code.len() + 2 {
                let _ = (
                    code.behind(i),
                    code.behind_angles(i),
                    code.behind_attributes(i),
                    code.split_commas(i, 9),
                );
            }
        }
    }
}
