"""The values behind the golden files: hand-chosen, one of every kind of message."""

import numpy as np

from edge_agent.wire.blobs import BlobReference, make_chunk_list
from edge_agent.wire.codec import encode
from edge_agent.wire.manifest import (
    FeatureSpec,
    Manifest,
    MonitorSpec,
    OutputSpec,
    TensorSpec,
    TrainableSpec,
    TrainingGraphSpec,
)
from edge_agent.wire.messages import (
    Ack,
    BlobMissingEvent,
    BridgePresence,
    ChunkGrant,
    ClockTrust,
    Command,
    Configure,
    CountsBucket,
    CountsEvent,
    Done,
    ErrorEvent,
    Evaluate,
    EvaluateResult,
    Event,
    EventBody,
    FlagAccuracy,
    FlagAttribution,
    FlagEvent,
    FlagLabels,
    FlagTest,
    Identify,
    Overlay,
    Presence,
    Reply,
    SignedCommand,
    State,
    Train,
    TrainingEvent,
    TrainResult,
    TrustedVersions,
    UpdateLifecycleEvent,
    UpdateManifest,
)
from edge_agent.wire.messages.command import CommandAction
from edge_agent.wire.provision import ProvisionedFloors
from edge_agent.wire.release import (
    BundleTarget,
    CandidateStatement,
    CohortTarget,
    CommandKey,
    FleetTarget,
    Membership,
    MembershipTarget,
    ReleaseMap,
    WeightsStatement,
    encode_membership,
    encode_release_map,
)
from edge_agent.wire.tensors import encode_weights
from edge_agent.wire.topics import FleetTopics
from edge_agent.wire.updates import encode_update

A, B, C, D = ("a1" * 32, "b2" * 32, "c3" * 32, "d4" * 32)
BLOB = BlobReference(digest=A, length=105_308, chunk_list=B)
TENSORS = {
    "conv.w": np.array([[0.5, -0.25, 1.0], [2.0, -3.0, 0.0]], np.float32),
    "gain": np.array(1.5, np.float32),
}
MEMBERS = MembershipTarget(
    gateways={"gw-01": Membership(bundle=C, cohort="c1"), "gw-02": Membership(bundle=C, cohort="root")}
)


def payloads() -> dict[str, bytes]:
    """Payloads by file name without suffix."""
    return {
        **{f"Event.{name}": encode(_event(body)) for name, body in _events().items()},
        **{f"Command.{name}": encode(_command(action)) for name, action in _actions().items()},
        **{f"Reply.{name}": encode(reply) for name, reply in _replies().items()},
        **_telemetry(),
        **_targets(),
        "Manifest.classifier": encode(_manifest()),
        "topics.all": _topics(),
        "weights.two": encode_weights(TENSORS),
        "update-fp32.two": encode_update(TENSORS, "fp32"),
        "update-fp16.two": encode_update(TENSORS, "fp16"),
        "update-int8.two": encode_update(TENSORS, "int8"),
        "membership.two": encode_membership(MEMBERS),
        "release-map.two": encode_release_map({"1.root.json": b'{"signed":1}', "timestamp.json": b"\x00\xff"}),
    }


def _event(body: EventBody) -> Event:
    return Event(
        gateway="gw-01", epoch="e7", sequence=12, low=9, dropped=[(3, 4), (6, 6)], time_s=1_760_000_000.25, body=body
    )


def _events() -> dict[str, EventBody]:
    return {
        "flag": FlagEvent(
            flag_id=D,
            monitor="loss-rise",
            firing=1,
            bundle=C,
            weights=A,
            weights_version=1,
            cohort="root",
            first_drifted_sample="1432-0",
            first_drifted_time_s=143.2,
            statistic=1.25,
            threshold=0.5,
            evidence={"batch_loss": 1.75, "previous_loss": 0.5},
            trainable_samples=17,
        ),
        "flag-overlaid": FlagEvent(
            flag_id=D,
            monitor="label-free",
            firing=3,
            bundle=C,
            weights=A,
            weights_version=3,
            cohort="c1",
            first_drifted_sample="1432-2",
            first_drifted_time_s=344.5,
            statistic=9.5,
            threshold=7.25,
            trainable_samples=40,
            overlay=Overlay(digest=B, batches=29),
        ),
        "counts-overlaid": CountsEvent(
            bundle=C,
            weights=B,
            weights_version=3,
            cohort="c1",
            bucket_s=60.0,
            buckets=[CountsBucket(bucket=29_333_333, labelled=20, right=19, loss_sum=4.25)],
            release=A,
            overlay_batches=29,
        ),
        "flag-evidence": FlagEvent(
            flag_id=A,
            monitor="loss-level",
            firing=2,
            bundle=C,
            weights=A,
            weights_version=3,
            cohort="c1",
            first_drifted_sample="1432-1",
            first_drifted_time_s=244.5,
            statistic=9.5,
            threshold=7.25,
            evidence={"batch_size": 32.0},
            trainable_samples=40,
            severity=0.625,
            severity_by="loss",
            shift="covariate",
            tests=[
                FlagTest(monitor="loss-level", statistic=9.5, threshold=7.25, warning_threshold=5.0, rows=32),
                FlagTest(monitor="label-free", statistic=4.5, threshold=4.0, warning_threshold=3.5, rows=64),
            ],
            attributions=[
                FlagAttribution(name="loss", before=0.25, now=1.5),
                FlagAttribution(
                    name="inlet temperature", before=12.5, now=17.25, unit="°C", weight=0.75, measure="spread"
                ),
            ],
            samples=["1432-1", "1433-1"],
            labels=FlagLabels(served=512, labelled=128, delay_median_s=60.5, delay_p90_s=600.0, bias="low confidence"),
            accuracy=FlagAccuracy(value=0.5, low=0.375, high=0.625, expected=0.9375, rows=500),
            cut=["samples"],
        ),
        "update": UpdateLifecycleEvent(step="refused", reason="bad_signature", detail="snapshot", map_digest=B),
        "counts": CountsEvent(
            bundle=C,
            weights=A,
            weights_version=1,
            cohort="root",
            bucket_s=60.0,
            buckets=[CountsBucket(bucket=-1, labelled=20, right=19, loss_sum=2.5)],
        ),
        "blob-missing": BlobMissingEvent(blob=BLOB),
        "training": TrainingEvent(command_id="adapt1-r1-gw-01", step="done", samples=500, duration_s=2.5),
        "error": ErrorEvent(place="source", problem="line 3: „x“ is no number\nnext", hint="mend the file"),
    }


def _actions() -> dict[str, CommandAction]:
    return {
        "train": Train(
            adaptation="1",
            round=1,
            bundle=C,
            base=BLOB,
            cohort="root",
            training_graph="adam",
            learning_rate=0.003,
            epochs=3,
            batch_size=32,
            min_samples=32,
            max_samples=1000,
            seed=2**53,
            coding="int8",
            config={"clma-cohort": "root", "server-round": 1, "lr": 0.5, "proximal": True},
        ),
        "evaluate": Evaluate(bundle=C, weights=BLOB, since_sample="1432-0", max_samples=500),
        "configure": Configure(state_interval_s=15.0, training_enabled=False),
        "identify": Identify(),
    }


def _command(action: CommandAction) -> Command:
    return Command(
        fleet="plant", gateway="gw-01", boot_id="b3", command_id="c-9", sequence=4, duration_s=120.0, action=action
    )


def _replies() -> dict[str, Reply]:
    chunk_list = make_chunk_list(b"update" * 10_000, 16384)
    manifest = UpdateManifest(coding="int8", base=A, digest=D, chunks=chunk_list)
    metrics = {"num-examples": 500, "clma-loss": 1.5, "per-class": [1, 2, 3], "norms": [0.5, 1.5]}
    return {
        "train": Reply(
            gateway="gw-01",
            boot_id="b3",
            command_id="c-9",
            status="ok",
            result=TrainResult(round=1, cohort="root", update=manifest, metrics=metrics),
        ),
        "evaluate": Reply(
            gateway="gw-01",
            boot_id="b3",
            command_id="c-10",
            status="ok",
            result=EvaluateResult(weights=A, metrics={"num-examples": 50, "loss": 0.25, "accuracy": 0.98}),
        ),
        "done": Reply(gateway="gw-01", boot_id="b3", command_id="c-11", status="ok", result=Done()),
        "accepted": Reply(gateway="gw-01", boot_id="b3", command_id="c-9", status="accepted"),
        "error": Reply(
            gateway="gw-01",
            boot_id="b3",
            command_id="c-9",
            status="error",
            reason="too-few-samples",
            detail="9 of 32",
        ),
        "stale-boot": Reply(gateway="gw-01", boot_id="b4", command_id="c-9", status="stale-boot"),
        "sequence-low": Reply(
            gateway="gw-01", boot_id="b3", command_id="c-9", status="sequence-low", highest_sequence=7
        ),
    }


def _telemetry() -> dict[str, bytes]:
    state = State(
        gateway="gw-01",
        boot_id="b3",
        agent_version="0.1.0",
        bundle=C,
        weights=A,
        weights_version=2,
        cohort="c1",
        ota_state="idle",
        trusted=TrustedVersions(root=1, timestamp=5, snapshot=5, targets=1, release=2, map_digest=B),
        clock=ClockTrust(trusted=True, floor_s=1_760_000_000.0),
        trainable_samples=512,
        training=False,
        served_samples=9000,
        outbox_depth=3,
        peak_rss_bytes=118_000_000,
    )
    grant = ChunkGrant(command_id="c-9", digest=D, indices=[0, 1, 2])
    ack = Ack(bridge_boot_id="bb1", epoch="e7", committed=[(1, 9), (11, 11)], grants=[grant])
    envelope = SignedCommand(key_id="k1", signature="c2lnbmF0dXJl", body=encode(_command(Identify())).decode())
    return {
        "Presence.online": encode(Presence(gateway="gw-01", online=True, boot_id="b3", connection=2)),
        "BridgePresence.offline": encode(BridgePresence(boot_id="bb1", online=False)),
        "State.full": encode(state),
        "State.overlaid": encode(state.model_copy(update={"overlay": Overlay(digest=D, batches=29)})),
        "Ack.both": encode(ack),
        "SignedCommand.identify": encode(envelope),
        "ReleaseMap.one": encode(ReleaseMap(files={"timestamp.json": "e30="})),
        "ProvisionedFloors.first": encode(
            ProvisionedFloors(
                root=1, targets=1, bundles=1, cohorts=1, snapshot=1, timestamp=1, created_s=1.76e9, map_digest=B
            )
        ),
        "ChunkList.two": encode(make_chunk_list(b"\x00" * 20_000, 16384)),
    }


def _targets() -> dict[str, bytes]:
    candidate = CandidateStatement(version=4, weights=BLOB, base_version=3, eligible=["gw-01"], step=1)
    current = WeightsStatement(version=3, weights=BLOB, base_version=2, kind="revert")
    return {
        "FleetTarget.one-key": encode(
            FleetTarget(fleet="plant", default_bundle=C, command_keys={"k1": CommandKey(public=D)})
        ),
        "BundleTarget.three": encode(
            BundleTarget(files={"infer.onnx": BLOB, "manifest.json": BLOB, "train/adam.onnx": BLOB})
        ),
        "MembershipTarget.two": encode(MEMBERS),
        "CohortTarget.candidate": encode(CohortTarget(bundle=C, cohort="c1", current=current, candidate=candidate)),
    }


def _manifest() -> Manifest:
    return Manifest(
        name="motion",
        kind="classification",
        classes=2,
        inputs=[TensorSpec(name="x", dtype="float32", shape=["batch", 6, 100])],
        outputs=[OutputSpec(name="logits", dtype="float32", shape=["batch", 2], role="logits")],
        features=[FeatureSpec(name="acceleration x", unit="m/s²")],
        label_names=["rest", "motion"],
        loss="cross-entropy",
        trainable=[TrainableSpec(name="conv.w", dtype="float32", shape=[2, 3], role="task:line-2")],
        training=[
            TrainingGraphSpec(
                name="adam",
                file="train/adam.onnx",
                loss="cross-entropy",
                optimiser="adam",
                trainable=["conv.w"],
                state=["m", "v"],
                scalars=["learning_rate", "step"],
                label_input="label",
            )
        ],
        monitors={
            "loss-rise": MonitorSpec(
                parameters={"gamma": 0.5, "clip": 0.75, "patience": 1, "hold_previous": True, "origin": "quantile"},
                batch_size=32,
                false_alarm_rate=0.001,
                evidence="1000 resampled batches",
            )
        },
        opset=17,
        minimum_agent_version="0.1.0",
        files={"infer.onnx": A, "train/adam.onnx": B, "weights.safetensors": C},
    )


def _topics() -> bytes:
    topics = FleetTopics("plant")
    lines = [
        topics.presence("gw-01"),
        topics.state("gw-01"),
        topics.event("gw-01"),
        topics.reply("gw-01"),
        topics.upload_chunk("gw-01", A, 0),
        topics.command("gw-01"),
        topics.ack("gw-01"),
        topics.chunk(B, 65_535),
        topics.release,
        topics.bridge,
    ]
    return "\n".join(lines).encode()
