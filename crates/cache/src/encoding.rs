//! A compact encoding of records: numbers of variable length, and bytes with their length before them.
//!
//! There are no names and no types in it: a reader asks for what the writer wrote, in the same order.
//! Reading is total. Bytes that end early or do not fit give `None`.

/// Writes a record.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
}

impl Writer {
    /// An empty record.
    pub fn new() -> Self {
        Self::default()
    }

    /// Add a number: seven bits to the byte, the lowest first.
    pub fn number(&mut self, mut number: u64) {
        while number >= 0x80 {
            self.bytes.push(number as u8 | 0x80);
            number >>= 7;
        }
        self.bytes.push(number as u8);
    }

    /// Add a yes or no.
    pub fn flag(&mut self, flag: bool) {
        self.number(u64::from(flag));
    }

    /// Add bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.bytes.extend_from_slice(bytes);
    }

    /// Add text.
    pub fn text(&mut self, text: &str) {
        self.bytes(text.as_bytes());
    }

    /// Add a value that may be absent.
    pub fn option<T>(&mut self, value: Option<T>, write: impl FnOnce(&mut Self, T)) {
        self.flag(value.is_some());
        if let Some(value) = value {
            write(self, value);
        }
    }

    /// Add a list.
    pub fn list<T>(&mut self, items: &[T], mut write: impl FnMut(&mut Self, &T)) {
        self.number(items.len() as u64);
        items.iter().for_each(|item| write(self, item));
    }

    /// The record.
    pub fn finish(self) -> Vec<u8> {
        self.bytes
    }
}

/// Reads a record.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Read from the start.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// The next number.
    pub fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.rest.split_first()?;
            self.rest = rest;
            let bits = u64::from(byte & 0x7f);
            if bits.leading_zeros() < shift {
                return None;
            }
            number |= bits << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    /// The next number, when it fits.
    pub fn small<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.number()?).ok()
    }

    /// The next yes or no.
    pub fn flag(&mut self) -> Option<bool> {
        match self.number()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// The next bytes.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.small()?;
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }

    /// The next text.
    pub fn text(&mut self) -> Option<String> {
        String::from_utf8(self.bytes()?.to_vec()).ok()
    }

    /// The next value that may be absent.
    pub fn option<T>(&mut self, read: impl FnOnce(&mut Self) -> Option<T>) -> Option<Option<T>> {
        if self.flag()? { read(self).map(Some) } else { Some(None) }
    }

    /// The next list.
    pub fn list<T>(&mut self, mut read: impl FnMut(&mut Self) -> Option<T>) -> Option<Vec<T>> {
        let count = self.number()?;
        (0..count).map(|_| read(self)).collect()
    }

    /// `value`, if the record ends here.
    pub fn end<T>(&self, value: T) -> Option<T> {
        self.rest.is_empty().then_some(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Vec<u8> {
        let mut writer = Writer::new();
        [0, 1, 127, 128, 300, u64::MAX].into_iter().for_each(|n| writer.number(n));
        writer.text("größe");
        writer.option(Some("x"), Writer::text);
        writer.option(None::<&str>, Writer::text);
        writer.list(&[1, 2], |w, n| w.number(*n));
        writer.flag(true);
        writer.finish()
    }

    type Read = (Vec<u64>, String, Option<String>, Option<String>, Vec<u64>, bool);

    fn read(bytes: &[u8]) -> Option<Read> {
        let r = &mut Reader::new(bytes);
        let numbers = (0..6).map(|_| r.number()).collect::<Option<_>>()?;
        let text = r.text()?;
        let (some, none) = (r.option(Reader::text)?, r.option(Reader::text)?);
        let (list, flag) = (r.list(Reader::number)?, r.flag()?);
        r.end((numbers, text, some, none, list, flag))
    }

    #[test]
    fn what_was_written_is_read() {
        let (numbers, text, some, none, list, flag) = read(&record()).unwrap();
        assert_eq!(numbers, [0, 1, 127, 128, 300, u64::MAX]);
        assert_eq!((text.as_str(), some.as_deref(), none), ("größe", Some("x"), None));
        assert_eq!((list, flag), (vec![1, 2], true));
    }

    #[test]
    fn wrong_bytes_are_none() {
        let right = record();
        for end in 0..right.len() {
            assert_eq!(read(&right[..end]), None, "cut at {end}");
        }
        let longer = [&right[..], &[0]].concat();
        assert_eq!(read(&longer), None);
        assert_eq!(Reader::new(&[0xff; 10]).number(), None);
        assert_eq!(Reader::new(&[0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 2]).number(), None);
        let mut huge = Writer::new();
        huge.number(u64::MAX);
        let huge = huge.finish();
        assert_eq!(Reader::new(&huge).bytes(), None);
        assert_eq!(Reader::new(&huge).list(Reader::number), None);
        assert_eq!(Reader::new(&huge).small::<u32>(), None);
    }
}
