//! Group documents (MongoDB only), which list the sensors of each value of a group. They are derived from the sensor
//! documents and the configuration. If they are dropped, a walk recreates them.
//!
//! ```text
//! group:  { _id: "site lab climate,sensor=s1", schemaVersion: 1, group: "site", value: "lab", from: "climate,sensor=s1",
//!           count: 2, members: [ { sensor: "climate,sensor=s1", lastSeen: Date, latest: <reading> }, … ] }   in key order
//! groups: { site: "lab", asset: ["a1", "a2"] }     in the sensor's document: its memberships
//! ```
//!
//! A large group is split into several documents by key range. A document has the members from its `from` up to the `from`
//! of the next document. The `from` of the first document is empty.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Bson, Document, RawBsonRef, RawDocument, doc};
use percent_encoding::{AsciiSet, utf8_percent_encode};

use super::decode::{array, decode_current, identity, text};
use super::encode::SCHEMA_VERSION;
use super::meta;
use super::writer::BsonWriter;
use crate::bucket::{GroupRule, Result};
use crate::names::key;

/// The fields of a sensor's document that [`GroupedSensor::from_document`] reads.
pub const GROUPED_FIELDS: [&str; 9] =
    ["schemaVersion", "measurement", "tags", "fields", "meta", "metaStamps", "lastSeen", "latest", "groups"];
/// Maximum number of members of a group document.
pub const MEMBERS_MAX: usize = 200;
/// Maximum size of the members of a group document, in bytes.
const BYTES_MAX: usize = 128 * 1024;
/// Limits for the documents that a split creates: three quarters of the maxima, so that each can grow before the next split.
const SPLIT_MEMBERS_MAX: usize = MEMBERS_MAX * 3 / 4;
const SPLIT_BYTES_MAX: usize = BYTES_MAX * 3 / 4;
/// Maximum size of a member's latest reading, in bytes. A larger one is left out.
const LATEST_BYTES_MAX: usize = 8 * 1024;
/// Characters that are escaped in the value within an `_id`. A space ends the value.
const VALUE: &AsciiSet = &AsciiSet::EMPTY.add(b'%').add(b' ').add(0);

/// One group: the sensors that have the same value for a group rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct GroupId {
    /// The name of the rule.
    pub name: Box<str>,
    pub value: Box<str>,
}

/// Returns the common prefix of the `_id`s of a group's documents.
#[must_use]
pub fn group_prefix(group: &GroupId) -> String {
    format!("{} {} ", group.name, utf8_percent_encode(&group.value, VALUE))
}

/// A sensor with its memberships.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupedSensor {
    pub key: String,
    /// The groups that the sensor belongs to by its tags and metadata.
    pub groups: Vec<GroupId>,
    /// True if its document lists exactly these groups.
    pub is_marked: bool,
    /// The encoded member for group documents.
    member: Vec<u8>,
}

impl GroupedSensor {
    /// Reads a sensor's document. A sensor without fields has no readings and no memberships.
    ///
    /// # Errors
    /// If the document cannot be read.
    pub fn from_document(document: &RawDocument, rules: &[&GroupRule]) -> Result<Self> {
        decode_current(document, |document| {
            let sensor = identity(document)?;
            let meta = meta::read(document);
            let part = |name: &str| document.get(name).ok().flatten();
            let has_fields = part("fields").and_then(RawBsonRef::as_document).is_some_and(|fields| !fields.is_empty());
            let of_rule = |rule: &&GroupRule| {
                let values = rule.values(&sensor, &meta).into_iter().map(|value| Box::from(&*value));
                let groups: Vec<GroupId> = values.map(|value| GroupId { name: rule.name.clone(), value }).collect();
                groups
            };
            let groups: Vec<GroupId> = rules.iter().filter(|_| has_fields).flat_map(of_rule).collect();
            let stored = part("groups").and_then(RawBsonRef::as_document).map(Document::try_from).transpose();
            let is_marked = stored.map_err(|e| e.to_string())?.unwrap_or_default() == memberships(&groups);
            let mut w = BsonWriter::document(256);
            w.text("sensor", &sensor.key);
            if let Some(seen) = part("lastSeen").and_then(RawBsonRef::as_datetime) {
                w.date("lastSeen", seen.timestamp_millis());
            }
            let latest = part("latest").and_then(RawBsonRef::as_document);
            if let Some(latest) = latest.filter(|latest| latest.as_bytes().len() <= LATEST_BYTES_MAX) {
                w.raw("latest", latest.as_bytes());
            }
            Ok(Self { key: sensor.key.to_string(), groups, is_marked, member: w.finish() })
        })
    }

    /// Returns the update that lists the groups in the sensor's document.
    #[must_use]
    pub fn mark(&self) -> Document {
        if self.groups.is_empty() {
            return doc! { "$unset": { "groups": 1 } };
        }
        doc! { "$set": { "groups": memberships(&self.groups) } }
    }
}

/// Returns the field `groups` of a sensor with these groups: by name the value, or an array of several.
fn memberships(groups: &[GroupId]) -> Document {
    let mut by_name = Document::new();
    for group in groups {
        let value = Bson::String(group.value.to_string());
        match by_name.get_mut(&*key(&group.name)) {
            None => drop(by_name.insert(key(&group.name), value)),
            Some(Bson::Array(values)) => values.push(value),
            Some(one) => *one = Bson::Array(vec![one.clone(), value]),
        }
    }
    by_name
}

/// A group document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupPage {
    pub group: GroupId,
    /// The lowest key that belongs to this document.
    from: String,
    /// In key order.
    members: Vec<Member>,
}

/// A member of a group document.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Member {
    /// The sensor's key.
    key: String,
    encoded: Vec<u8>,
}

impl GroupPage {
    /// Creates the first document of a group, without members.
    #[must_use]
    pub fn first(group: GroupId) -> Self {
        Self { group, from: String::new(), members: Vec::new() }
    }

    /// Decodes a stored document.
    ///
    /// # Errors
    /// If it cannot be read, or a later version wrote it.
    pub fn from_document(document: &RawDocument) -> Result<Self> {
        decode_current(document, |document| {
            let mut members = Vec::new();
            for member in array(document, "members")? {
                let member = member.map_err(|e| e.to_string())?.as_document().ok_or("a member is not a document")?;
                members.push(Member { key: text(member, "sensor")?.to_owned(), encoded: member.as_bytes().to_vec() });
            }
            let group = GroupId { name: text(document, "group")?.into(), value: text(document, "value")?.into() };
            Ok(Self { group, from: text(document, "from")?.to_owned(), members })
        })
    }

    #[must_use]
    pub fn id(&self) -> String {
        group_prefix(&self.group) + &self.from
    }

    #[must_use]
    pub fn has(&self, sensor: &str) -> bool {
        self.members.binary_search_by(|member| member.key.as_str().cmp(sensor)).is_ok()
    }

    /// Returns the keys of the members, in order.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|member| member.key.as_str())
    }

    /// Encodes the document.
    #[must_use]
    pub fn encoded(&self) -> Vec<u8> {
        let bytes: usize = self.members.iter().map(|member| member.encoded.len() + 8).sum();
        let mut w = BsonWriter::document(256 + bytes);
        w.text("_id", &self.id());
        w.count("schemaVersion", SCHEMA_VERSION);
        w.text("group", &self.group.name);
        w.text("value", &self.group.value);
        w.text("from", &self.from);
        w.count("count", self.members.len() as u64);
        w.array("members", self.members.iter(), |w, key, member| w.raw(key, &member.encoded));
        w.finish()
    }

    /// Splits the document if it is too large. Returns no document if it has no members.
    fn split(self) -> Vec<Self> {
        let mut count_max = MEMBERS_MAX;
        let mut bytes_max = BYTES_MAX;
        let bytes: usize = self.members.iter().map(|member| member.encoded.len()).sum();
        if self.members.len() > MEMBERS_MAX || bytes > BYTES_MAX {
            count_max = SPLIT_MEMBERS_MAX;
            bytes_max = SPLIT_BYTES_MAX;
        }
        let mut pages: Vec<Self> = Vec::new();
        let mut page_bytes = 0;
        for member in self.members {
            let bytes = member.encoded.len();
            let has_room = |page: &&mut Self| page.members.len() < count_max && page_bytes + bytes <= bytes_max;
            if let Some(page) = pages.last_mut().filter(has_room) {
                page_bytes += bytes;
                page.members.push(member);
            } else {
                let from = if pages.is_empty() { self.from.clone() } else { member.key.clone() };
                page_bytes = bytes;
                pages.push(Self { group: self.group.clone(), from, members: vec![member] });
            }
        }
        pages
    }
}

/// The writes that bring group documents up to date.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct GroupChanges {
    /// New and changed documents.
    pub written: Vec<GroupPage>,
    /// The `_id`s of documents that have no members left.
    pub removed: Vec<String>,
}

/// Computes the changes that bring the group documents `pages`, by `_id`, up to date with the sensors.
///
/// `keys` are the keys of all sensors examined, and `sensors` are those of them that exist. `homes` has, for each
/// sensor and group, the `_id` of the document that the sensor belongs to; `pages` contains all of them.
#[must_use]
pub fn group_changes(
    pages: BTreeMap<String, GroupPage>,
    keys: &BTreeSet<&str>,
    sensors: &[GroupedSensor],
    homes: &BTreeMap<(&str, &GroupId), String>,
) -> GroupChanges {
    let mut wanted: BTreeMap<&str, Vec<&GroupedSensor>> = BTreeMap::new();
    for sensor in sensors {
        for home in sensor.groups.iter().filter_map(|group| homes.get(&(sensor.key.as_str(), group))) {
            wanted.entry(home).or_default().push(sensor);
        }
    }
    let mut changes = GroupChanges::default();
    for (id, before) in &pages {
        let mut page = before.clone();
        page.members.retain(|member| !keys.contains(member.key.as_str()));
        let sensors = wanted.get(id.as_str()).into_iter().flatten();
        page.members.extend(sensors.map(|sensor| Member { key: sensor.key.clone(), encoded: sensor.member.clone() }));
        page.members.sort_by(|one, other| one.key.cmp(&other.key));
        if page == *before {
            continue;
        }
        if page.members.is_empty() {
            changes.removed.push(id.clone());
        } else {
            changes.written.extend(page.split());
        }
    }
    changes
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bson::RawDocumentBuf;

    use super::*;

    fn rule(name: &str, source: &str) -> GroupRule {
        GroupRule { name: name.into(), source: source.into(), database: None }
    }

    fn sensor(number: usize, site: Option<&str>) -> GroupedSensor {
        let mut document = doc! {
            "_id": format!("m,s={number:04}"), "schemaVersion": 1, "measurement": "m", "tags": { "s": format!("{number:04}") },
            "fields": { "v": "number" }, "latest": { "v": 1.5 }, "lastSeen": bson::DateTime::from_millis(5),
        };
        if let Some(site) = site {
            document.insert("meta", doc! { "site": site });
        }
        let document = RawDocumentBuf::try_from(&document).unwrap();
        GroupedSensor::from_document(&document, &[&rule("site", "meta.site")]).unwrap()
    }

    /// Group documents in memory, with the same search for homes as in the store.
    #[derive(Default)]
    struct MemoryGroups(BTreeMap<String, GroupPage>);

    impl MemoryGroups {
        fn settle(&mut self, keys: &[String], sensors: &[GroupedSensor]) {
            let mut homes = BTreeMap::new();
            for sensor in sensors {
                for group in &sensor.groups {
                    let prefix = group_prefix(group);
                    let range = prefix.clone()..=prefix.clone() + &sensor.key;
                    let home = self.0.range(range).next_back().map(|(id, _)| id.clone()).unwrap_or_else(|| {
                        self.0.insert(prefix.clone(), GroupPage::first(group.clone()));
                        prefix
                    });
                    homes.insert((sensor.key.as_str(), group), home);
                }
            }
            let changes = group_changes(self.0.clone(), &keys.iter().map(String::as_str).collect(), sensors, &homes);
            changes.removed.iter().for_each(|id| drop(self.0.remove(id)));
            for page in changes.written {
                // Encode and decode each document, as the store does.
                let stored = RawDocumentBuf::from_bytes(page.encoded()).unwrap();
                self.0.insert(page.id(), GroupPage::from_document(&stored).unwrap());
            }
        }

        /// Returns the value of each member, and checks that no sensor is a member twice.
        fn members(&self) -> BTreeMap<String, String> {
            let mut found = BTreeMap::new();
            for page in self.0.values() {
                assert!(!page.members.is_empty() && page.members.len() <= MEMBERS_MAX, "{}", page.id());
                for key in page.keys() {
                    assert!(found.insert(key.to_owned(), page.group.value.to_string()).is_none(), "{key} twice");
                }
            }
            found
        }
    }

    #[test]
    fn members_match_a_plain_model_after_joins_moves_and_removals() {
        let sites = [Some("lab"), Some("roof"), Some("a b"), Some("lab "), None];
        let mut kept = MemoryGroups::default();
        let mut model = BTreeMap::new();
        let mut seed = 7_u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).unwrap() % below
        };
        for step in 0..400 {
            // Every third step changes many sensors of one site, so that documents are split, or removes them.
            let is_large = step % 3 == 0;
            let count = if is_large { 150 } else { 9 };
            let site = is_large.then(|| random(5));
            let is_removal = is_large && random(4) == 0;
            let mut now: BTreeMap<String, Option<GroupedSensor>> = BTreeMap::new();
            for _ in 0..count {
                let number = random(1500);
                let changed = sensor(number, sites[site.unwrap_or_else(|| random(5))]);
                now.insert(changed.key.clone(), (!is_removal && random(12) > 0).then_some(changed));
            }
            let keys: Vec<String> = now.keys().cloned().collect();
            for (key, changed) in &now {
                match changed.as_ref().and_then(|sensor| sensor.groups.first()) {
                    Some(group) => drop(model.insert(key.clone(), group.value.to_string())),
                    None => drop(model.remove(key)),
                }
            }
            let sensors: Vec<GroupedSensor> = now.into_values().flatten().collect();
            kept.settle(&keys, &sensors);
            assert_eq!(kept.members(), model, "step {step}");
            let before = kept.0.clone();
            kept.settle(&keys, &sensors);
            assert_eq!(kept.0, before, "a repetition changes nothing");
        }
        assert!(kept.0.len() > 8, "{} documents", kept.0.len());
    }

    #[test]
    fn a_sensor_document_lists_its_groups() {
        let mut document = doc! {
            "_id": "m,s=1", "schemaVersion": 1, "measurement": "m", "tags": { "s": "1" }, "fields": { "v": "number" },
            "meta": { "site": "lab" }, "groups": { "site": "roof" }, "latest": { "v": "x".repeat(LATEST_BYTES_MAX) },
        };
        let read = |document: &Document| {
            let rules = [rule("site", "meta.site"), rule("s", "s")];
            GroupedSensor::from_document(&RawDocumentBuf::try_from(document).unwrap(), &[&rules[0], &rules[1]]).unwrap()
        };
        let sensor = read(&document);
        assert!(!sensor.is_marked && sensor.member.len() < 100, "an oversized reading is left out");
        assert_eq!(sensor.mark(), doc! { "$set": { "groups": { "site": "lab", "s": "1" } } });
        document.insert("groups", doc! { "s": "1", "site": "lab" });
        assert!(read(&document).is_marked);
        document.insert("fields", doc! {});
        let sensor = read(&document);
        assert!(!sensor.is_marked && sensor.groups.is_empty(), "without readings");
        assert_eq!(sensor.mark(), doc! { "$unset": { "groups": 1 } });
    }
}
