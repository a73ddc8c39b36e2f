//! The format of an entry's file: magic number, checksum over the key and all that follows, the content's length, the content.
//!
//! Content that LZ4 shortens is compressed: LLVM IR takes a quarter of the space, machine code half. Decompression takes less time than
//! reading and hashing the rest would.

use crate::Key;

const MARK: &[u8; 8] = b"elinvar\x02";
const LENGTH: usize = size_of::<u32>();

/// Content of up to this length is not compressed: its file takes one block of the file system anyway.
const SHORT: usize = 4096 - MARK.len() - blake3::OUT_LEN - LENGTH;

/// LZ4 shortens content at most by this factor.
const MAX_RATIO: usize = 255;

/// The file of an entry. `None` if the content is too long.
pub(crate) fn seal(key: &Key, content: &[u8]) -> Option<Vec<u8>> {
    let length = u32::try_from(content.len()).ok()?.to_le_bytes();
    let compressed = (content.len() > SHORT).then(|| lz4_flex::block::compress(content));
    let compressed = compressed.filter(|compressed| compressed.len() < content.len());
    let stored = compressed.as_deref().unwrap_or(content);
    Some([&MARK[..], checksum(key, &[&length, stored]).as_bytes(), &length, stored].concat())
}

/// The content of a file that is complete and belongs to the key.
pub(crate) fn open(key: &Key, mut file: Vec<u8>) -> Option<Vec<u8>> {
    let rest = file.strip_prefix(MARK)?;
    let (sum, rest) = rest.split_first_chunk::<{ blake3::OUT_LEN }>()?;
    let (length, stored) = rest.split_first_chunk::<LENGTH>()?;
    // `blake3::Hash` compares with bytes.
    if checksum(key, &[length, stored]) != *sum {
        return None;
    }
    let length = u32::from_le_bytes(*length) as usize;
    if length == stored.len() {
        return Some(file.split_off(MARK.len() + blake3::OUT_LEN + LENGTH));
    }
    let possible = length <= stored.len().saturating_mul(MAX_RATIO);
    let content = possible.then(|| lz4_flex::block::decompress(stored, length))?.ok()?;
    (content.len() == length).then_some(content)
}

fn checksum(key: &Key, parts: &[&[u8]]) -> blake3::Hash {
    let mut hasher = blake3::Hasher::new_keyed(&key.0);
    for part in parts {
        hasher.update(part);
    }
    hasher.finalize()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A file with a valid checksum.
    fn file(key: &Key, length: u32, stored: &[u8]) -> Vec<u8> {
        let length = length.to_le_bytes();
        [&MARK[..], checksum(key, &[&length, stored]).as_bytes(), &length, stored].concat()
    }

    /// Bytes that cannot be compressed.
    pub(crate) fn pseudorandom(length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        blake3::Hasher::new().finalize_xof().fill(&mut bytes);
        bytes
    }

    #[test]
    fn every_bit_and_every_length_counts() {
        let key = Key::of(b"k");
        let long = b"compressible ".repeat(500);
        for content in [&b"content"[..], &long] {
            let file = seal(&key, content).unwrap();
            assert!(file.len() < 200, "{}", file.len());
            assert_eq!(open(&key, file.clone()).as_deref(), Some(content));
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

    #[test]
    fn content_of_every_length_comes_back() {
        let key = Key::of(b"k");
        let (noise, zeros) = (pseudorandom(100_000), vec![0; 100_000]);
        for length in [0, 1, 12, 64, SHORT - 1, SHORT, SHORT + 1, 2 * SHORT, 65_535, 65_536, 100_000] {
            for content in [&noise[..length], &zeros[..length], &[&noise[..length], &zeros].concat()] {
                let file = seal(&key, content).unwrap();
                assert!(file.len() <= content.len() + 44, "{length}");
                assert!(content.len() <= SHORT || !content.ends_with(&zeros) || file.len() < length + 1000);
                assert_eq!(open(&key, file).unwrap(), content, "{length}");
            }
        }
    }

    #[test]
    fn a_wrong_length_with_a_valid_checksum_is_no_entry() {
        let key = Key::of(b"k");
        let content = b"compressible ".repeat(500);
        let stored = lz4_flex::block::compress(&content);
        assert_eq!(open(&key, file(&key, content.len() as u32, &stored)), Some(content.clone()));
        let length = content.len() as u32;
        for wrong in [0, 1, length - 1, length + 1, 2 * length, u32::MAX / 2, u32::MAX] {
            assert_eq!(open(&key, file(&key, wrong, &stored)), None, "{wrong}");
        }
        assert_eq!(open(&key, file(&key, 7, b"")), None);
        // Bytes that are not LZ4.
        assert_eq!(open(&key, file(&key, 5000, &pseudorandom(4000))), None);
    }
}
