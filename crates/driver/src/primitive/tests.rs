//! Valid and invalid shapes and sizes.

use super::*;

fn sizes(primitive: Primitive) -> Vec<(&'static str, u64, OperandUse)> {
    let operands = primitive.operands().unwrap();
    operands.into_iter().map(|operand| (operand.name, operand.bytes, operand.used)).collect()
}

fn wrong(primitive: Primitive) -> String {
    match primitive.operands() {
        Err(Error::InvalidArgument(text)) => text,
        other => panic!("{other:?}"),
    }
}

const IMAGES: Images = Images { count: 2, channels: 3, height: 5, width: 7 };

fn convolution(window: Window) -> Convolution {
    let layout = Layout::ChannelsLast;
    Convolution {
        weight_type: DataType::F32,
        bias: true,
        ..Convolution::new(DataType::F16, layout, IMAGES, 4, window)
    }
}

#[test]
fn bytes_reach_from_the_first_element_to_the_last() {
    use OperandUse::{Read, Replaced, Updated, Written};
    let mut product = MatMul::packed(DataType::F32, 3, 5, 2);
    assert_eq!(
        sizes(Primitive::MatMul(product)),
        [("left", 60, Read), ("right", 40, Read), ("result", 24, Replaced)]
    );
    product.left = Matrix::strided(5, 3, 20);
    product.transpose_left = true;
    product.result = Matrix { matrix_bytes: 48, ..Matrix::strided(3, 2, 16) };
    product.matrices = 2;
    let expected = [("left", 100 + 92, Read), ("right", 80, Read), ("result", 48 + 40, Written)];
    assert_eq!(sizes(Primitive::MatMul(product)), expected);
    product.beta = 0.5;
    assert_eq!(sizes(Primitive::MatMul(product))[2].2, Updated);
    let reduction = Reduction {
        data_type: DataType::F16,
        kind: ReductionKind::Mean,
        each: Extent::Column,
        source: Matrix::strided(3, 5, 12),
    };
    assert_eq!(sizes(Primitive::Reduction(reduction)), [("source", 34, Read), ("result", 10, Replaced)]);
}

#[test]
fn a_window_fits_so_often() {
    let mut window = Window::new(3, 2);
    assert_eq!(convolution(window).result(), Images { channels: 4, height: 3, width: 6, ..IMAGES });
    window.stride = [2, 3];
    window.dilation = [2, 1];
    window.padding = Padding { top: 1, bottom: 2, left: 1, right: 0 };
    let result = convolution(window).result();
    assert_eq!((result.height, result.width), (2, 3));
    let expected = [
        ("source", 2 * 3 * 5 * 7 * 2, OperandUse::Read),
        ("weights", 4 * 3 * 2 * 3 * 4, OperandUse::Read),
        ("bias", 16, OperandUse::Read),
        ("result", 2 * 4 * 2 * 3 * 2, OperandUse::Replaced),
    ];
    assert_eq!(sizes(Primitive::Convolution(convolution(window))), expected);
}

#[test]
fn what_is_wrong_is_named() {
    let product = MatMul::packed(DataType::F32, 3, 5, 2);
    let text = |change: fn(&mut MatMul)| {
        let mut product = product;
        change(&mut product);
        wrong(Primitive::MatMul(product))
    };
    assert!(
        text(|p| p.transpose_right = true)
            .contains("inner dimensions differ: `left` is 3 × 5, `right` is 2 × 5")
    );
    assert!(text(|p| p.result.columns = 1).contains("`result` is 3 × 1, the product is 3 × 2"));
    assert!(text(|p| p.left.row_bytes = 18).contains("`left` has a row stride of 18 bytes"));
    assert!(text(|p| p.right.rows = 0).contains("`right` is 0 × 2"));
    assert!(text(|p| p.alpha = f32::NAN).contains("alpha NaN"));
    assert!(text(|p| p.matrices = 0).contains("the batch size is 0"));
    assert!(
        text(|p| (p.matrices, p.result.matrix_bytes) = (2, 20))
            .contains("`result` has a matrix stride of 20 bytes")
    );
    assert!(text(|p| p.left.row_bytes = u64::MAX / 4 * 4).contains("more than an allocation can have"));
    let of = |window| wrong(Primitive::Convolution(convolution(window)));
    assert!(of(Window::new(6, 1)).contains("spans 6 rows, more than the 5 of the padded image"));
    assert!(of(Window::new(0, 1)).contains("sizes are [0, 1]"));
    assert!(of(Window { stride: [1, 0], ..Window::new(1, 1) }).contains("strides are [1, 0]"));
    assert!(of(Window { padding: Padding::all(2), ..Window::new(2, 3) }).contains("padding of 2 rows"));
    let huge = Images { count: u32::MAX, channels: u32::MAX, height: u32::MAX, width: u32::MAX };
    let pooling = Pooling {
        data_type: DataType::F32,
        layout: Layout::ChannelsFirst,
        source: huge,
        window: Window::new(1, 1),
        kind: PoolKind::Max,
    };
    assert!(wrong(Primitive::Pooling(pooling)).contains("`source` needs"));
}

#[test]
fn a_set_holds_what_was_put_in() {
    let set = Primitives::NONE
        .with(PrimitiveKind::MatMul, DataType::F32)
        .with(PrimitiveKind::Pooling, DataType::F16)
        .with_images(16, 8);
    let all: Vec<_> = set.iter().collect();
    assert_eq!(all, [(PrimitiveKind::MatMul, DataType::F32), (PrimitiveKind::Pooling, DataType::F16)]);
    let product = |data_type| Primitive::MatMul(MatMul::packed(data_type, 1, 1, 1));
    assert!(set.expect(&product(DataType::F32), &[], "d").is_ok());
    let refused = set.expect(&product(DataType::F16), &[], "d");
    assert!(
        matches!(refused, Err(Error::Unsupported(text)) if text.contains("matrix multiplication of f16: device `d`"))
    );
    let pooling = |width| {
        let source = Images { width, ..IMAGES };
        let (data_type, layout, kind) = (DataType::F16, Layout::ChannelsLast, PoolKind::Average);
        Primitive::Pooling(Pooling { data_type, layout, source, window: Window::new(1, 1), kind })
    };
    assert!(set.expect(&pooling(16), &[], "d").is_ok());
    let refused = set.expect(&pooling(17), &[], "d");
    assert!(matches!(refused, Err(Error::Unsupported(text)) if text.contains("`source` has 5 × 17")));
}

#[test]
fn pooling_keeps_channels_and_counts_positions() {
    let window = Window { stride: [1, 3], ..Window::new(3, 2) };
    let pooling = Pooling {
        data_type: DataType::F32,
        layout: Layout::ChannelsLast,
        source: IMAGES,
        window,
        kind: PoolKind::Max,
    };
    let result = Images { height: 3, width: 2, ..IMAGES };
    assert_eq!(pooling.result(), result);
    let expected = [
        ("source", 2 * 3 * 5 * 7 * 4, OperandUse::Read),
        ("result", 2 * 3 * 3 * 2 * 4, OperandUse::Replaced),
    ];
    assert_eq!(sizes(Primitive::Pooling(pooling)), expected);
}

#[test]
fn matrices_may_not_overlap() {
    let mut product = MatMul::packed(DataType::F32, 3, 4, 5);
    product.matrices = 2;
    product.left.matrix_bytes = 32;
    let text = wrong(Primitive::MatMul(product));
    assert!(
        text.contains("`left` has a matrix stride of 32 bytes; it must be a multiple of 16 and at least 48"),
        "{text}"
    );
}

/// A matrix that is reduced is an image of one channel, and its result one of one row or column.
#[test]
fn limits_of_images_hold_for_what_is_reduced() {
    let set = Primitives::NONE.with(PrimitiveKind::Reduction, DataType::F32).with_images(100, 4);
    let expect = |rows: u32, columns: u32, each: Extent| {
        let source = Matrix::packed(DataType::F32, rows, columns);
        let reduction = Reduction { data_type: DataType::F32, kind: ReductionKind::Sum, each, source };
        set.expect(&Primitive::Reduction(reduction), &[], "d")
    };
    assert!(expect(100, 100, Extent::Row).is_ok() && expect(100, 100, Extent::Column).is_ok());
    for (rows, columns) in [(101, 1), (1, 101)] {
        match expect(rows, columns, Extent::Row) {
            Err(Error::Unsupported(text)) => {
                let expected = format!("`source` has {rows} × {columns} pixels of 1 channels");
                assert!(text.contains(&expected) && text.contains("up to 100 × 100 of 4"), "{text}");
            }
            other => panic!("{other:?}"),
        }
    }
}

fn volumes() -> VolumeConvolution {
    VolumeConvolution {
        data_type: DataType::F32,
        layout: Layout::ChannelsFirst,
        source: Volumes { count: 2, channels: 4, size: [5, 7, 9] },
        result: Volumes { count: 2, channels: 6, size: [5, 3, 6] },
        window: VolumeWindow { size: [3, 3, 2], stride: [1, 2, 2], dilation: [1, 1, 2], padding: [1, 0, 2] },
        groups: 2,
        bias: true,
        transposed: false,
    }
}

#[test]
fn convolutions_of_volumes_have_their_operands() {
    use OperandUse::{Read, Replaced};
    let of = volumes();
    let (source, result) = (2 * 4 * 5 * 7 * 9 * 4, 2 * 6 * 5 * 3 * 6 * 4);
    let weights = ("weights", 6 * 2 * 3 * 3 * 2 * 4, Read);
    assert_eq!(
        sizes(Primitive::VolumeConvolution(of)),
        [("source", source, Read), weights, ("bias", 24, Read), ("result", result, Replaced)]
    );
    // Transposed, the result is what a convolution reads; a width of 10 has 6 positions as well.
    let wider = Volumes { size: [5, 7, 10], ..of.source };
    for (read, bytes) in [(of.source, source), (wider, source / 9 * 10)] {
        let back = VolumeConvolution { source: of.result, result: read, bias: false, transposed: true, ..of };
        let expected = [("source", result, Read), weights, ("result", bytes, Replaced)];
        assert_eq!(sizes(Primitive::VolumeConvolution(back)), expected);
    }
    let text = |change: fn(&mut VolumeConvolution)| {
        let mut of = of;
        change(&mut of);
        wrong(Primitive::VolumeConvolution(of))
    };
    assert!(text(|p| p.result.size[2] = 5).contains("the window has [5, 3, 6] positions"));
    assert!(text(|p| p.result.count = 1).contains("`source` is 2 of [5, 7, 9] points and `result` 1 of"));
    assert!(text(|p| p.groups = 3).contains("3 groups"));
    assert!(text(|p| p.window.stride[1] = 0).contains("strides are [1, 0, 2]"));
    assert!(text(|p| p.window.size[1] = 8).contains("spans 8 points along axis 1, more than the 7"));
    assert!(text(|p| p.source.channels = 0).contains("`source` is 2 volumes of 0 channels"));
    let refused = |of| {
        let set = Primitives::of(PrimitiveLibrary::Nvidia).with_floats(PrimitiveKind::VolumeConvolution);
        set.expect(&Primitive::VolumeConvolution(of), &[], "d").err().map(|error| error.to_string())
    };
    assert_eq!(refused(of), None);
    let half = refused(VolumeConvolution { data_type: DataType::F16, ..of });
    assert!(half.is_some_and(|text| text.contains("adds a bias to convolutions of volumes of f32 only")));
    let large = Volumes { count: 1 << 25, ..of.source };
    assert!(refused(VolumeConvolution { source: large, ..of }).is_some_and(|text| text.contains("2³¹")));
}

#[test]
fn batch_normalization_has_its_operands() {
    use OperandUse::{Read, Replaced, Updated};
    let source = Volumes { count: 2, channels: 3, size: [1, 5, 7] };
    let of = |statistics, data_type| {
        let layout = Layout::ChannelsLast;
        Primitive::BatchNorm(BatchNorm { data_type, layout, source, epsilon: 1e-5, statistics })
    };
    let all = 2 * 3 * 5 * 7 * 2;
    let given = [
        ("source", all, Read),
        ("scale", 12, Read),
        ("bias", 12, Read),
        ("mean", 12, Read),
        ("variance", 12, Read),
        ("result", all, Replaced),
    ];
    assert_eq!(sizes(of(BatchStatistics::Given, DataType::F16)), given);
    let running = of(BatchStatistics::Running { momentum: 0.1 }, DataType::F16);
    let mut saved = given.to_vec();
    saved[3..5].copy_from_slice(&[("mean", 12, Replaced), ("inverse_deviation", 12, Replaced)]);
    assert_eq!(sizes(of(BatchStatistics::Saved, DataType::F16)), saved);
    saved.splice(5..5, [("running_mean", 12, Updated), ("running_variance", 12, Updated)]);
    assert_eq!(sizes(running), saved);
    let wild = of(BatchStatistics::Running { momentum: 1.5 }, DataType::F32);
    assert!(wrong(wild).contains("the momentum is 1.5"));
    assert_eq!(bit_count(), PrimitiveKind::ALL.len() * DataType::ALL.len());
}

/// Pairs of operation and type that a set tells apart.
fn bit_count() -> usize {
    let all = PrimitiveKind::ALL.into_iter().flat_map(|kind| DataType::ALL.map(|ty| (kind, ty)));
    all.fold(Primitives::NONE, |set, (kind, ty)| set.with(kind, ty)).iter().count()
}

#[test]
fn attention_has_its_operands() {
    use OperandUse::{Read, Replaced};
    let of = Attention {
        data_type: DataType::F16,
        batch: 2,
        heads: 6,
        key_heads: 3,
        queries: 5,
        keys: 7,
        width: 8,
        value_width: 4,
        scale: 0.5,
        causal: None,
        mask: Some(AttentionMask { data_type: DataType::F32, shape: [2, 1, 1, 7] }),
    };
    let expected = [
        ("query", 2 * 6 * 5 * 8 * 2, Read),
        ("key", 2 * 3 * 7 * 8 * 2, Read),
        ("value", 2 * 3 * 7 * 4 * 2, Read),
        ("mask", 2 * 7 * 4, Read),
        ("result", 2 * 6 * 5 * 4 * 2, Replaced),
    ];
    assert_eq!(sizes(Primitive::Attention(of)), expected);
    let text = |change: fn(&mut Attention)| {
        let mut of = of;
        change(&mut of);
        wrong(Primitive::Attention(of))
    };
    assert!(text(|p| p.key_heads = 4).contains("6 heads; it must be a multiple of the 4"));
    assert!(text(|p| p.key_heads = 0).contains("multiple of the 0"));
    assert!(text(|p| p.keys = 0).contains("`key` has the shape [2, 3, 0, 8]"));
    assert!(text(|p| p.scale = f32::NAN).contains("it must be finite"));
    assert!(text(|p| p.data_type = DataType::I8).contains("i8"));
    let mask = AttentionMask { data_type: DataType::F32, shape: [2, 1, 4, 7] };
    assert!(
        wrong(Primitive::Attention(Attention { mask: Some(mask), ..of }))
            .contains("broadcast to [2, 6, 5, 7]")
    );
    let huge = Attention { mask: None, batch: u32::MAX, queries: u32::MAX, ..of };
    assert!(wrong(Primitive::Attention(huge)).contains("more than an allocation"));
}

#[test]
fn normalization_has_its_operands() {
    use OperandUse::{Read, Replaced};
    let of = Normalization {
        data_type: DataType::F16,
        parameter_type: DataType::F32,
        shape: [5, 2, 3, 7],
        epsilon: 1e-5,
        center: true,
        scale: true,
        bias: false,
        saved: true,
    };
    let expected = [
        ("source", 420, Read),
        ("scale", 24, Read),
        ("mean", 40, Replaced),
        ("inverse_deviation", 40, Replaced),
        ("result", 420, Replaced),
    ];
    assert_eq!(sizes(Primitive::Normalization(of)), expected);
    let rms = Normalization { center: false, bias: true, ..of };
    let names: Vec<_> = sizes(Primitive::Normalization(rms)).into_iter().map(|(name, ..)| name).collect();
    assert_eq!(names, ["source", "scale", "bias", "inverse_deviation", "result"]);
    let bad = Normalization { epsilon: -1.0, ..of };
    assert!(wrong(Primitive::Normalization(bad)).contains("not negative"));
    let bad = Normalization { shape: [5, 0, 3, 7], ..of };
    assert!(wrong(Primitive::Normalization(bad)).contains("[5, 0, 3, 7]"));
}

#[test]
fn mpsgraph_computes_what_the_shaders_lack() {
    let graph = GraphLibrary { bf16: true, volumes: true, offsets: true, attention: true };
    let shaders =
        Primitives::of(PrimitiveLibrary::MetalPerformanceShaders).with(PrimitiveKind::MatMul, DataType::F32);
    let set = shaders.with_graph(graph);
    let refused = |set: Primitives, of: MatMul| {
        set.expect(&Primitive::MatMul(of), &[], "d").err().map(|error| error.to_string())
    };
    let plain = MatMul::packed(DataType::F32, 3, 5, 2);
    let biased = MatMul { bias: true, ..plain };
    let half = MatMul::packed(DataType::BF16, 3, 5, 2);
    for (of, name) in [
        (plain, "MPSMatrixMultiplication"),
        (biased, "MPSGraph matrixMultiplication"),
        (half, "MPSGraph matrixMultiplication"),
    ] {
        assert_eq!(refused(set, of), None);
        assert_eq!(set.algorithm(&Primitive::MatMul(of), &[]), name);
        assert_eq!(set.is_for_graph(&Primitive::MatMul(of), &[]), name.starts_with("MPSGraph"));
    }
    let both = refused(shaders, biased).unwrap();
    assert!(both.contains("has no bias") && both.contains("no MPSGraph before macOS 12.3"), "{both}");
    let old = shaders.with_graph(GraphLibrary { bf16: false, ..graph });
    assert!(refused(old, half).unwrap().contains("bf16 from macOS 14 on only"));
    assert!(
        !old.has(PrimitiveKind::MatMul, DataType::BF16) && set.has(PrimitiveKind::MatMul, DataType::BF16)
    );
    // Rows and matrices that are apart, a single row, and a factor that all products share.
    let apart = |row_bytes, rows| Matrix::strided(rows, 5, row_bytes);
    let gap = |left| MatMul { left, ..biased };
    assert!(refused(set, gap(apart(24, 3))).unwrap().contains("MPSGraph takes matrices without gaps only"));
    let one = MatMul { bias: true, ..MatMul::packed(DataType::F32, 1, 5, 2) };
    assert_eq!(refused(set, MatMul { left: apart(24, 1), ..one }), None);
    let batch = |matrix_bytes| MatMul { matrices: 4, ..gap(Matrix { matrix_bytes, ..plain.left }) };
    assert_eq!([0, 60, 80].map(|bytes| refused(set, batch(bytes)).is_none()), [true, true, false]);
    let integers = refused(set, MatMul::packed(DataType::I8, 4, 4, 4)).unwrap();
    assert!(integers.contains("MPSGraph is not used for it"), "{integers}");
    let large = Volumes { count: 1 << 20, channels: 1 << 11, size: [1; 3] };
    let norm = |source| {
        let (layout, statistics) = (Layout::ChannelsFirst, BatchStatistics::Saved);
        let data_type = DataType::F32;
        Primitive::BatchNorm(BatchNorm { data_type, layout, source, epsilon: 0.0, statistics })
    };
    let fits = |source| set.expect(&norm(source), &[], "d").is_ok();
    assert_eq!([fits(large), fits(Volumes { count: (1 << 20) - 1, ..large })], [false, true]);
}
