//! The format of an entry's file: magic number, checksum over key and content, content.

use crate::Key;

const MARK: &[u8; 8] = b"elinvar\x01";
const HEAD: usize = MARK.len() + blake3::OUT_LEN;

/// The header of an entry.
pub(crate) fn head(key: &Key, content: &[u8]) -> [u8; HEAD] {
    let mut head = [0; HEAD];
    head[..MARK.len()].copy_from_slice(MARK);
    head[MARK.len()..].copy_from_slice(checksum(key, content).as_bytes());
    head
}

/// The content of a file that is complete and belongs to the key.
pub(crate) fn open(key: &Key, mut file: Vec<u8>) -> Option<Vec<u8>> {
    let rest = file.strip_prefix(MARK)?;
    let (sum, content) = rest.split_at_checked(blake3::OUT_LEN)?;
    // `blake3::Hash` compares with bytes.
    let same = checksum(key, content) == *<&[u8; blake3::OUT_LEN]>::try_from(sum).ok()?;
    same.then(|| file.split_off(HEAD))
}

fn checksum(key: &Key, content: &[u8]) -> blake3::Hash {
    blake3::Hasher::new_keyed(&key.0).update(content).finalize()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_and_every_length_counts() {
        let key = Key::of(b"k");
        let file = [&head(&key, b"content")[..], b"content"].concat();
        assert_eq!(open(&key, file.clone()).as_deref(), Some(&b"content"[..]));
        assert_eq!(open(&Key::of(b"l"), file.clone()), None);
        for bit in 0..file.len() * 8 {
            let mut wrong = file.clone();
            wrong[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(open(&key, wrong), None, "bit {bit}");
        }
        for end in 0..file.len() {
            assert_eq!(open(&key, file[..end].to_vec()), None, "cut at {end}");
        }
        assert_eq!(open(&key, [&file[..], b"\0"].concat()), None);
    }
}
