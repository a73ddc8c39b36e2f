//! Rewritten text with a map from its offsets to offsets of the input (clang's `RewriteBuffer`).

/// Output of a rewrite, with the map to its input.
#[derive(Clone, Debug, Default)]
pub(crate) struct RewriteBuffer {
    text: String,
    /// Sorted by `output`; each holds up to the next one.
    mappings: Vec<Mapping>,
    /// Offset at which the glue begins.
    glue: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
struct Mapping {
    output: usize,
    input: usize,
    /// Whether the text was copied, so that offsets advance together; otherwise it maps to one offset.
    copied: bool,
}

impl RewriteBuffer {
    pub(crate) fn text(&self) -> &str {
        &self.text
    }

    /// Append a part of the input that begins at `input`.
    pub(crate) fn copy(&mut self, piece: &str, input: usize) {
        self.push(piece, Mapping { output: self.text.len(), input, copied: true });
    }

    /// Append text that replaces what is at `input`.
    pub(crate) fn replace(&mut self, text: &str, input: usize) {
        self.push(text, Mapping { output: self.text.len(), input, copied: false });
    }

    fn push(&mut self, text: &str, mapping: Mapping) {
        if !text.is_empty() {
            self.mappings.push(mapping);
            self.text.push_str(text);
        }
    }

    /// Insert text at the beginning; it maps to the beginning of the input.
    pub(crate) fn prepend(&mut self, text: &str) {
        if text.is_empty() {
            return;
        }
        self.text.insert_str(0, text);
        for mapping in &mut self.mappings {
            mapping.output += text.len();
        }
        self.mappings.insert(0, Mapping { output: 0, input: 0, copied: false });
        self.glue = self.glue.map(|at| at + text.len());
    }

    /// Map an offset of the output to the input.
    pub(crate) fn input(&self, output: usize) -> usize {
        let after = self.mappings.partition_point(|a| a.output <= output);
        match after.checked_sub(1).map(|i| self.mappings[i]) {
            Some(a) if a.copied => a.input + (output - a.output),
            Some(a) => a.input,
            None => 0,
        }
    }

    /// Mark what follows as glue.
    pub(crate) fn begin_glue(&mut self) {
        self.glue = Some(self.text.len());
    }

    /// Whether an offset is in glue, and not in a part copied into it.
    pub(crate) fn is_glue(&self, output: usize) -> bool {
        let after = self.mappings.partition_point(|a| a.output <= output);
        let copied = after.checked_sub(1).is_some_and(|i| self.mappings[i].copied);
        self.glue.is_some_and(|from| output >= from) && !copied
    }

    /// The offset of a line and column, both 1-based, as clang reports them.
    pub(crate) fn offset(&self, line: u32, column: u32) -> usize {
        let skip = (line as usize).saturating_sub(1);
        let start = match skip.checked_sub(1) {
            Some(n) => self.text.match_indices('\n').nth(n).map_or(self.text.len(), |(i, _)| i + 1),
            None => 0,
        };
        (start + (column as usize).saturating_sub(1)).min(self.text.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_lead_back() {
        let mut m = RewriteBuffer::default();
        m.replace("head\n", 0);
        m.copy("abc", 10);
        m.replace("const", 13);
        m.copy(" d\n", 21);
        assert_eq!(m.text(), "head\nabcconst d\n");
        assert_eq!(m.input(2), 0);
        assert_eq!(m.input(6), 11);
        assert_eq!(m.input(9), 13);
        assert_eq!(m.input(14), 22);
        assert_eq!(m.offset(2, 3), 7);
        assert_eq!(m.offset(9, 1), m.text().len());
        m.prepend("#\n");
        assert_eq!((m.input(0), m.input(8), m.input(16)), (0, 11, 22));
        m.begin_glue();
        m.replace("f(", 3);
        m.copy("arg", 12);
        let end = m.text().len();
        assert!(!m.is_glue(11) && m.is_glue(end - 5) && !m.is_glue(end - 3));
    }
}
