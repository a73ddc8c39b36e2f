//! Formats against the C library, and the ring with concurrent writers.

use std::sync::atomic::{AtomicU64, Ordering};

use super::ring::{Reader, place_of, slots_of, write};
use super::*;
use crate::Scalar;

fn number(scalar: Scalar) -> LogValue {
    LogValue::Number { scalar, lanes: 1 }
}

fn message(format: &str, values: &[LogValue], words: &[u64]) -> String {
    let site = LogSite { format: format.into(), values: values.to_vec(), ..LogSite::default() };
    site.check().unwrap_or_else(|error| panic!("{format}: {error}"));
    site.message(words)
}

#[cfg(target_os = "linux")]
#[allow(unsafe_code)] // calls the C library
mod of_the_c_library {
    use std::ffi::CString;

    use super::*;

    macro_rules! c_format {
        ($format:expr, $($value:expr),*) => {{
            let format = CString::new($format).unwrap();
            let mut buffer = vec![0_u8; 8192];
            // SAFETY: the buffer has this size, and the value has the type that the format names.
            let len = unsafe { libc::snprintf(buffer.as_mut_ptr().cast(), buffer.len(), format.as_ptr(), $($value),*) };
            String::from_utf8(buffer[..len as usize].to_vec()).unwrap()
        }};
    }

    /// All combinations of flags, widths and precisions.
    fn fields() -> Vec<String> {
        let mut fields = Vec::new();
        for flags in 0..32 {
            let flags: String = (0..5)
                .filter(|bit| flags >> bit & 1 == 1)
                .map(|bit| ['-', '+', ' ', '#', '0'][bit])
                .collect();
            for width in ["", "1", "7", "30"] {
                for precision in ["", ".", ".0", ".1", ".3", ".12"] {
                    fields.push(format!("{flags}{width}{precision}"));
                }
            }
        }
        fields
    }

    #[test]
    fn integers() {
        let values =
            [0_i64, 1, -1, 7, 8, 255, -128, 65_535, 1 << 31, -(1 << 31), i64::MAX, i64::MIN, 123_456_789];
        for field in fields() {
            for conversion in ["d", "i", "u", "x", "X", "o"] {
                for value in values {
                    let format = format!("<%{field}{conversion}>");
                    let got = message(&format, &[number(Scalar::I32)], &[value as u64]);
                    assert_eq!(got, c_format!(format.as_str(), value as i32), "{format} of {value}");
                    let format = format!("<%{field}l{conversion}>");
                    let got = message(&format, &[number(Scalar::I64)], &[value as u64]);
                    assert_eq!(got, c_format!(format.as_str(), value), "{format} of {value}");
                }
            }
            for modifier in ["h", "hh"] {
                for value in values {
                    let format = format!("<%{field}{modifier}d|%{field}{modifier}x>");
                    let values = [number(Scalar::I32), number(Scalar::I32)];
                    let got = message(&format, &values, &[value as u64; 2]);
                    assert_eq!(
                        got,
                        c_format!(format.as_str(), value as i32, value as i32),
                        "{format} of {value}"
                    );
                }
            }
        }
    }

    #[test]
    fn floating_point() {
        let mut values = vec![
            0.0_f32,
            -0.0,
            1.0,
            -1.0,
            0.5,
            1.5,
            2.5,
            0.25,
            0.125,
            9.5,
            99.5,
            999_999.5,
            1e6,
            1e-4,
            9.9999e-5,
            1e-5,
            123.456,
            f32::MAX,
            f32::MIN_POSITIVE,
            f32::from_bits(1),
            f32::INFINITY,
            f32::NEG_INFINITY,
            f32::NAN,
            -f32::NAN,
            0.1,
            1e10,
        ];
        values.extend((1..40_u32).map(|k| f32::from_bits(k.wrapping_mul(0x9e37_79b9))));
        for field in fields() {
            for conversion in ["f", "F", "e", "E", "g", "G", "a", "A"] {
                for value in &values {
                    let format = format!("<%{field}{conversion}>");
                    let got = message(&format, &[number(Scalar::F32)], &[u64::from(value.to_bits())]);
                    let expected = c_format!(format.as_str(), f64::from(*value));
                    // glibc drops the zeros of a number that is rounded up to a power of ten, against the standard.
                    if conversion.eq_ignore_ascii_case("g")
                        && field.contains('#')
                        && expected.to_ascii_lowercase().contains("1.e+")
                    {
                        continue;
                    }
                    assert_eq!(got, expected, "{format} of {value:?}");
                }
            }
        }
    }

    #[test]
    fn counts_characters_texts_and_pointers() {
        for (width, precision) in [(0, 0), (9, 3), (-9, 3), (9, -1), (-3, -5)] {
            let format = "<%*.*d|%*d|%.*f>";
            let values =
                [Scalar::I32; 5].map(number).into_iter().chain([Scalar::I32, Scalar::F32].map(number));
            let words = [width, precision, 42, width, 42, precision].map(|word: i32| i64::from(word) as u64);
            let words: Vec<u64> = words.into_iter().chain([u64::from(1.25_f32.to_bits())]).collect();
            let got = message(format, &values.collect::<Vec<_>>(), &words);
            assert_eq!(got, c_format!(format, width, precision, 42, width, 42, precision, 1.25_f64));
        }
        for field in ["", "5", "-5", ".2", "8.1"] {
            let format = format!("<%{field}s|%{field}c>");
            let text = CString::new("abc").unwrap();
            let values = [LogValue::Text("abc".into()), number(Scalar::I8)];
            let field_of_c = c_format!(format.as_str(), text.as_ptr(), i32::from(b'x'));
            assert_eq!(message(&format, &values, &[1, u64::from(b'x')]), field_of_c);
        }
        for address in [0_u64, 1, 0x1234_5678_9abc] {
            for field in ["", "20", "-20"] {
                let format = format!("<%{field}p>");
                let got = message(&format, &[LogValue::Pointer], &[address]);
                assert_eq!(got, c_format!(format.as_str(), address as *const u8), "{format}");
            }
        }
    }
}

#[test]
fn components_are_formatted_one_by_one() {
    let vector = |scalar, lanes| LogValue::Number { scalar, lanes };
    let words: Vec<u64> = [0.5_f32, -1.0, 2.0, 3.25].map(|value| u64::from(value.to_bits())).to_vec();
    assert_eq!(message("<%6.2v4f>", &[vector(Scalar::F16, 4)], &words), "<  0.50, -1.00,  2.00,  3.25>");
    assert_eq!(message("%v4hlf", &[vector(Scalar::F32, 4)], &words), "0.500000,-1.000000,2.000000,3.250000");
    let words: Vec<u64> = (0..16).map(|k| k * 17).collect();
    let expected: Vec<String> = (0..16).map(|k| format!("{:x}", (k * 17) as u8)).collect();
    assert_eq!(message("%v16hhx", &[vector(Scalar::U8, 16)], &words), expected.join(","));
}

#[test]
fn what_no_kernel_sends_is_no_panic() {
    let site = LogSite { format: "%d %s %v4f".into(), ..LogSite::default() };
    assert!(site.check().is_err());
    assert_eq!(site.message(&[]), "%d %s %v4f");
    let values = vec![number(Scalar::I32); 3];
    let site = LogSite { format: "%d %d %d".into(), values, ..LogSite::default() };
    assert_eq!(site.message(&[7]), "7 0 0");
    for format in
        ["%", "%5", "%.", "%v", "%v4", "%hh", "%99999d", "%v4294967296d", "%*", "%lc", "%ls", "%Lf", "%-+ #0"]
    {
        let site = LogSite { format: format.into(), values: vec![number(Scalar::I32)], ..LogSite::default() };
        assert!(site.check().is_err(), "{format}");
    }
    let many = LogSite {
        values: vec![LogValue::Number { scalar: Scalar::I32, lanes: 16 }; 5],
        ..LogSite::default()
    };
    assert!(many.check().unwrap_err().contains("at most 64"));
}

fn record(thread: u32, words: Vec<u64>) -> Record {
    Record { kernel: 1 + thread % 3, site: thread as u16, thread: [thread, 2, 3], words }
}

/// The record as it is read, without the words behind its values.
fn cut(mut record: Record, values: usize) -> Record {
    record.words.truncate(values);
    record
}

#[test]
fn records_come_out_as_they_went_in() {
    let memory = LogMemory::host(1024);
    let control = memory.control();
    let mut reader = Reader::default();
    let mut lost = 0;
    for round in 0..200_u32 {
        let lengths: Vec<usize> = (0..round % 7).map(|k| ((round * 31 + k * 17) % 65) as usize).collect();
        let (mut free, mut expected) = (16, Vec::new());
        for (k, len) in lengths.into_iter().enumerate() {
            let record = record(
                round * 10 + k as u32,
                (0..len as u64).map(|word| word * 0x0101_0101_0101 + 1).collect(),
            );
            let fits = slots_of(len) <= free;
            assert_eq!(write(&memory, &control, &record), fits, "round {round}");
            match fits {
                true => {
                    free -= slots_of(len);
                    expected.push(record);
                }
                false => lost += 1,
            }
        }
        for record in expected {
            let values = record.words.len();
            let read = reader.next(&memory, false).expect("a record").expect("a valid one");
            assert_eq!(cut(read, values), record);
        }
        assert_eq!(reader.next(&memory, round % 2 == 0), None);
    }
    assert!(lost > 0);
    assert_eq!(memory.lost(), lost);
}

#[test]
fn records_behind_one_that_is_not_published() {
    let memory = LogMemory::host(1024);
    let control = memory.control();
    let mut reader = Reader::default();
    let records: Vec<Record> =
        [3, 20, 0, 9].into_iter().enumerate().map(|(k, len)| record(k as u32, vec![7; len])).collect();
    records.iter().for_each(|record| assert!(write(&memory, &control, record)));
    let tag = |at: usize| memory.slot_word(at, 0);
    // The first two are not published yet.
    let held = [0, 1].map(|at| (at, tag(at).swap(0, Ordering::Relaxed)));
    assert_eq!(reader.next(&memory, false), None);
    for expected in &records[2..] {
        let read = reader.next(&memory, true).expect("a record").expect("a valid one");
        assert_eq!(&cut(read, expected.words.len()), expected);
    }
    assert_eq!(reader.next(&memory, true), None);
    // All but the slots of the two unpublished are still taken.
    assert!(!write(&memory, &control, &record(9, vec![0; 64])));
    held.iter().for_each(|(at, tag_of)| tag(*at).store(*tag_of, Ordering::Release));
    for expected in &records[..2] {
        let read = reader.next(&memory, true).expect("a record").expect("a valid one");
        assert_eq!(&cut(read, expected.words.len()), expected);
    }
    assert_eq!(reader.next(&memory, true), None);
    assert!(write(&memory, &control, &record(10, vec![0; 64])), "all slots are free");
}

/// Any words at all: the reader ends, and passes nothing to a kernel that does not exist.
#[test]
fn a_ring_of_garbage_is_read_to_its_end() {
    let mut state = 0x1234_5678_9abc_def0_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    for round in 0..300 {
        let log = Log::new();
        log.set_size(1024).unwrap();
        log.control();
        let memory = &log.ring.get().unwrap().memory;
        for slot in 0..16 {
            for word in 0..8 {
                let tags = [0, u64::MAX, random(), ((random() % 3) << 48) | (random() % 3), (1 << 48) | 1];
                memory.slot_word(slot, word).store(tags[(random() % 5) as usize], Ordering::Relaxed);
            }
        }
        log.read(round % 2 == 0);
        log.read(true);
        log.restart();
        log.read(true);
    }
}

#[test]
fn writers_at_once() {
    const WRITERS: u32 = 4;
    const RECORDS: u64 = 20_000;
    let memory = LogMemory::host(4096);
    let control = memory.control();
    let (written, running) = (AtomicU64::new(0), AtomicU64::new(u64::from(WRITERS)));
    let mut reader = Reader::default();
    let mut last = [None::<u64>; WRITERS as usize];
    let mut count = 0;
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (memory, control, written, running) = (&memory, &control, &written, &running);
            scope.spawn(move || {
                for number in 0..RECORDS {
                    let len = 1 + (number * 7 + u64::from(writer)) % 30;
                    let words = (0..len).map(|word| number << 8 | word).collect();
                    let record =
                        Record { kernel: 1 + writer, site: 1, thread: [writer, len as u32, 0], words };
                    if write(memory, control, &record) {
                        written.fetch_add(1, Ordering::Relaxed);
                    }
                }
                running.fetch_sub(1, Ordering::Release);
            });
        }
        loop {
            let is_last = running.load(Ordering::Acquire) == 0;
            while let Some(record) = reader.next(&memory, false) {
                let record = record.expect("a valid record");
                let [writer, len, _] = record.thread;
                assert_eq!(record.kernel, 1 + writer);
                let number = record.words[0] >> 8;
                (0..u64::from(len))
                    .for_each(|word| assert_eq!(record.words[word as usize], number << 8 | word));
                let before = last[writer as usize].replace(number);
                assert!(before < Some(number), "record {number} of writer {writer} after {before:?}");
                count += 1;
            }
            if is_last {
                break;
            }
        }
    });
    assert_eq!(count, written.load(Ordering::Relaxed));
    assert_eq!(count + memory.lost(), u64::from(WRITERS) * RECORDS);
}

#[test]
fn places_of_values() {
    assert_eq!([0, 4, 5, 11, 12].map(place_of), [(0, 3), (0, 7), (1, 1), (1, 7), (2, 1)]);
    assert_eq!([0, 5, 6, 12, 13, 64].map(slots_of), [1, 1, 2, 2, 3, 10]);
}

#[test]
fn sizes_have_limits() {
    let log = Log::new();
    for bytes in [0, 1023, (1 << 30) + 1, u64::MAX] {
        assert!(matches!(log.set_size(bytes), Err(Error::InvalidArgument(_))), "{bytes}");
    }
    log.set_size(5000).unwrap();
    assert_eq!(LogMemory::size(log.size()), 64 * 64 + 128);
    log.control();
    assert!(log.set_size(4096).unwrap_err().to_string().contains("has to be set before"));
}

/// Each record is passed on or lost, and counted as one of both.
#[test]
fn delivered_and_lost_lines_are_counted() {
    let log = Log::new();
    log.set_size(1024).unwrap();
    let site = LogSite { format: "%u".into(), values: vec![number(Scalar::U32)], ..LogSite::default() };
    let signature = Signature {
        name: "k".into(),
        args: Vec::new(),
        builtins: Vec::new(),
        file: String::new(),
        line: 1,
        max_threads_per_threadgroup: None,
        code: None,
        logs: vec![site],
    };
    let kernel = log.kernel(&signature).unwrap();
    let seen = Arc::new(AtomicU64::new(0));
    let to = seen.clone();
    log.subscribe(Arc::new(move |_: &LogLine| {
        to.fetch_add(1, Ordering::Relaxed);
    }));
    // The ring has 16 slots.
    (0..40).for_each(|k| log.store(&kernel, 0, [k, 0, 0], vec![u64::from(k)]));
    assert_eq!((log.delivered(), log.lost()), (0, 24));
    log.read(true);
    log.store(&kernel, 0, [40, 0, 0], vec![40]);
    log.read(true);
    assert_eq!((seen.load(Ordering::Relaxed), log.delivered(), log.lost()), (17, 17, 24));
}
