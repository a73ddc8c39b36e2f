//! A bundle is read or refused, and what is read is written as the same bundle. What a record says is asked for by the
//! keys of sources and kernels, as a program does.
#![no_main]

use std::collections::BTreeMap;

use elinvar_cache::{Key, encode};
use elinvar_code::{Bundle, kernel_key, source_key};
use elinvar_driver::{PipelineOptions, Signature, Source};
use elinvar_spmd::bounds::Checks;
use libfuzzer_sys::fuzz_target;
use serde_bytes::Bytes;

fuzz_target!(|input: &[u8]| {
    let Some((kind, rest)) = input.split_first() else { return };
    match kind % 3 {
        0 => drop(read(rest)),
        // Damage that the checksum does not see.
        1 => drop(read(&sealed(rest))),
        _ => records(rest),
    }
});

fn read(bytes: &[u8]) -> Option<Bundle> {
    let bundle = Bundle::from_bytes(bytes).ok()?;
    let again = Bundle::from_bytes(&bundle.to_bytes());
    assert_eq!(again.ok().as_ref(), Some(&bundle));
    assert_eq!(bundle.is_empty(), bundle.len() == 0);
    Some(bundle)
}

/// A bundle's head over a body, as docs of `elinvar_code` say.
fn sealed(body: &[u8]) -> Vec<u8> {
    let mut bytes = Bundle::default().to_bytes()[..20].to_vec();
    bytes.extend((body.len() as u64).to_le_bytes());
    bytes.extend(Key::of(body).as_bytes());
    bytes.extend(body);
    bytes
}

fn records(record: &[u8]) {
    let source = Source::msl("a");
    let kernel = kernel_key("ptx", &source, "k", &PipelineOptions::default());
    let sources = BTreeMap::from([(("a.metal", 0_u8), source_key(&source))]);
    let records = BTreeMap::from([&source_key(&source), &kernel].map(|key| (*key.as_bytes(), Bytes::new(record))));
    let Some(bundle) = read(&sealed(&encode(&(sources, records)))) else { panic!("a bundle that is whole was refused") };
    assert_eq!(bundle.sources().count(), 1);
    if let Some(outcome) = bundle.source(&source) {
        let mut again = Bundle::default();
        again.insert_source(&source, &outcome);
        assert_eq!(format!("{:?}", again.source(&source)), format!("{:?}", Some(outcome)));
    }
    let _outcome = bundle.get::<(String, Signature, Option<Checks>)>(&kernel);
}
