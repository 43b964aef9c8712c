//! Groups' documents, on MongoDB only, and what a sensor's document says of them. They follow from the sensors' documents and
//! the configuration, and may be dropped: a walk writes them again.
//!
//! ```text
//! group:  { _id: "site lab climate,sensor=s1", schemaVersion: 1, group: "site", value: "lab", from: "climate,sensor=s1",
//!           count: 2, members: [ { sensor: "climate,sensor=s1", lastSeen: Date, latest: <reading> }, … ] }   in key order
//! groups: { site: "lab" }                  in the sensor's document: where it is a member
//! ```
//!
//! A group has as many documents as its members need. Each has those whose keys are not less than its `from` and less than the
//! next one's; the first one's is empty.

use std::collections::{BTreeMap, BTreeSet};

use bson::{Document, RawBsonRef, RawDocument, doc};
use percent_encoding::{AsciiSet, utf8_percent_encode};

use super::decode::{array, identity, named, text};
use super::encode::SCHEMA_VERSION;
use super::meta;
use super::writer::BsonWriter;
use crate::bucket::{GroupRule, Result};
use crate::names::{from_key, key};

/// What is needed of a sensor's document.
pub const GROUPED_FIELDS: [&str; 9] =
    ["schemaVersion", "measurement", "tags", "fields", "meta", "metaStamps", "lastSeen", "latest", "groups"];
/// Most members of a group's document, and about the most bytes that they take.
pub const MEMBERS_MAX: usize = 200;
const BYTES_MAX: usize = 128 * 1024;
/// Of these parts are the pieces of a document that has become too large, so that each has room for more.
const FILLED: (usize, usize) = (3, 4);
/// Most bytes of a member's latest reading; a larger one is left out.
const LATEST_BYTES: usize = 8 * 1024;
/// What ends a value within an `_id`.
const VALUE: &AsciiSet = &AsciiSet::EMPTY.add(b'%').add(b' ').add(0);

/// A group and one of its values.
pub type Place = (Box<str>, Box<str>);

/// What the `_id`s of all documents of a group's value begin with.
#[must_use]
pub fn place_prefix((group, value): &Place) -> String {
    format!("{group} {} ", utf8_percent_encode(value, VALUE))
}

/// A sensor as groups have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupedSensor {
    pub key: String,
    /// Where it is a member.
    pub places: Vec<Place>,
    /// Whether its document says so.
    pub is_marked: bool,
    member: Vec<u8>,
}

impl GroupedSensor {
    /// What a sensor's document says. Without a field it has had no reading, and is no member of anything.
    ///
    /// # Errors
    /// If the document cannot be read.
    pub fn of(document: &RawDocument, rules: &[&GroupRule]) -> Result<Self> {
        named(document, |document| {
            let (sensor, meta) = (identity(document)?, meta::read(document));
            let part = |name: &str| document.get(name).ok().flatten();
            let has_fields = part("fields").and_then(RawBsonRef::as_document).is_some_and(|fields| !fields.is_empty());
            let place = |rule: &&GroupRule| Some((rule.name.clone(), Box::from(&*rule.value(&sensor, &meta)?)));
            let places: Vec<Place> = rules.iter().filter(|_| has_fields).filter_map(place).collect();
            let said = part("groups").and_then(RawBsonRef::as_document).into_iter().flatten().flatten();
            let said = said.map(|(name, value)| {
                (from_key(name.as_str()).into_owned().into_boxed_str(), value.as_str().unwrap_or_default().into())
            });
            let is_marked = said.collect::<BTreeSet<Place>>() == places.iter().cloned().collect();
            let mut w = BsonWriter::document(256);
            w.text("sensor", &sensor.key);
            if let Some(seen) = part("lastSeen").and_then(RawBsonRef::as_datetime) {
                w.date("lastSeen", seen.timestamp_millis());
            }
            let latest = part("latest").and_then(RawBsonRef::as_document);
            if let Some(latest) = latest.filter(|latest| latest.as_bytes().len() <= LATEST_BYTES) {
                w.raw("latest", latest.as_bytes());
            }
            Ok(Self { key: sensor.key.to_string(), places, is_marked, member: w.finish() })
        })
    }

    /// The update of its document that says where it is a member.
    #[must_use]
    pub fn mark(&self) -> Document {
        if self.places.is_empty() {
            return doc! { "$unset": { "groups": 1 } };
        }
        let groups: Document =
            self.places.iter().map(|(name, value)| (key(name).into_owned(), (&**value).into())).collect();
        doc! { "$set": { "groups": groups } }
    }
}

/// A group's document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GroupPage {
    pub place: Place,
    from: String,
    /// Keys, each with the member as it is stored, in key order.
    members: Vec<(String, Vec<u8>)>,
}

impl GroupPage {
    /// A document without members: the first one of its place.
    #[must_use]
    pub fn first(place: Place) -> Self {
        Self { place, from: String::new(), members: Vec::new() }
    }

    /// Reads a stored document.
    ///
    /// # Errors
    /// If it cannot be read, or a later version wrote it.
    pub fn of(document: &RawDocument) -> Result<Self> {
        named(document, |document| {
            let mut members = Vec::new();
            for member in array(document, "members")? {
                let member = member.map_err(|e| e.to_string())?.as_document().ok_or("a member is not a document")?;
                members.push((text(member, "sensor")?.to_owned(), member.as_bytes().to_vec()));
            }
            let place = (text(document, "group")?.into(), text(document, "value")?.into());
            Ok(Self { place, from: text(document, "from")?.to_owned(), members })
        })
    }

    #[must_use]
    pub fn id(&self) -> String {
        place_prefix(&self.place) + &self.from
    }

    #[must_use]
    pub fn has(&self, sensor: &str) -> bool {
        self.members.binary_search_by(|(key, _)| key.as_str().cmp(sensor)).is_ok()
    }

    /// The keys of its members.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        self.members.iter().map(|(key, _)| key.as_str())
    }

    /// The document as it is stored.
    #[must_use]
    pub fn encoded(&self) -> Vec<u8> {
        let mut w = BsonWriter::document(256 + self.members.iter().map(|(_, member)| member.len() + 8).sum::<usize>());
        w.text("_id", &self.id());
        w.count("schemaVersion", SCHEMA_VERSION);
        w.text("group", &self.place.0);
        w.text("value", &self.place.1);
        w.text("from", &self.from);
        w.count("count", self.members.len() as u64);
        w.array("members", self.members.iter(), |w, key, (_, member)| w.raw(key, member));
        w.finish()
    }

    /// This document, or several where it is too large for one. None if it has no members.
    fn split(self) -> Vec<Self> {
        let bytes = |members: &[(String, Vec<u8>)]| members.iter().map(|(_, member)| member.len()).sum::<usize>();
        let (mut count_max, mut bytes_max) = (MEMBERS_MAX, BYTES_MAX);
        if self.members.len() > MEMBERS_MAX || bytes(&self.members) > BYTES_MAX {
            (count_max, bytes_max) = (count_max * FILLED.0 / FILLED.1, bytes_max * FILLED.0 / FILLED.1);
        }
        let (mut pages, mut taken): (Vec<Self>, usize) = (Vec::new(), 0);
        for (key, member) in self.members {
            match pages.last_mut().filter(|page| page.members.len() < count_max && taken + member.len() <= bytes_max) {
                Some(page) => {
                    taken += member.len();
                    page.members.push((key, member));
                }
                None => {
                    let from = if pages.is_empty() { self.from.clone() } else { key.clone() };
                    taken = member.len();
                    pages.push(Self { place: self.place.clone(), from, members: vec![(key, member)] });
                }
            }
        }
        pages
    }
}

/// What is to be done so that groups' documents are as sensors are.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct GroupChanges {
    /// Documents that are new or another than before.
    pub written: Vec<GroupPage>,
    /// The `_id`s of those that have no members any more.
    pub removed: Vec<String>,
}

/// Sets the documents `pages`, by their `_id`s, as sensors are. `keys` are the sensors that are looked at, `sensors` those of them that
/// there are; `homes` says for each of their places in which document it is, which `pages` has.
#[must_use]
pub fn settled(
    pages: BTreeMap<String, GroupPage>,
    keys: &BTreeSet<&str>,
    sensors: &[GroupedSensor],
    homes: &BTreeMap<(&str, &Place), String>,
) -> GroupChanges {
    let mut wanted: BTreeMap<&str, Vec<&GroupedSensor>> = BTreeMap::new();
    for sensor in sensors {
        for home in sensor.places.iter().filter_map(|place| homes.get(&(sensor.key.as_str(), place))) {
            wanted.entry(home).or_default().push(sensor);
        }
    }
    let mut changes = GroupChanges::default();
    for (id, before) in &pages {
        let mut page = before.clone();
        page.members.retain(|(key, _)| !keys.contains(key.as_str()));
        let members = wanted.get(id.as_str()).into_iter().flatten();
        page.members.extend(members.map(|sensor| (sensor.key.clone(), sensor.member.clone())));
        page.members.sort_by(|(one, _), (other, _)| one.cmp(other));
        if page == *before {
            continue;
        }
        match page.split() {
            none if none.is_empty() => changes.removed.push(id.clone()),
            pages => changes.written.extend(pages),
        }
    }
    changes
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use bson::RawDocumentBuf;

    use super::*;

    fn rule(name: &str, by: &str) -> GroupRule {
        GroupRule { name: name.into(), by: by.into(), database: None }
    }

    fn sensor(number: usize, site: Option<&str>) -> GroupedSensor {
        let mut document = doc! {
            "_id": format!("m,s={number:04}"), "schemaVersion": 1, "measurement": "m", "tags": { "s": format!("{number:04}") },
            "fields": { "v": "number" }, "latest": { "v": 1.5 }, "lastSeen": bson::DateTime::from_millis(5),
        };
        if let Some(site) = site {
            document.insert("meta", doc! { "site": site });
        }
        GroupedSensor::of(&RawDocumentBuf::try_from(&document).unwrap(), &[&rule("site", "meta.site")]).unwrap()
    }

    /// Groups' documents in memory, which find homes as the store does.
    #[derive(Default)]
    struct Kept(BTreeMap<String, GroupPage>);

    impl Kept {
        fn settle(&mut self, keys: &[String], sensors: &[GroupedSensor]) {
            let mut homes = BTreeMap::new();
            for sensor in sensors {
                for place in &sensor.places {
                    let prefix = place_prefix(place);
                    let range = prefix.clone()..=prefix.clone() + &sensor.key;
                    let home = self.0.range(range).next_back().map(|(id, _)| id.clone()).unwrap_or_else(|| {
                        self.0.insert(prefix.clone(), GroupPage::first(place.clone()));
                        prefix
                    });
                    homes.insert((sensor.key.as_str(), place), home);
                }
            }
            let changes = settled(self.0.clone(), &keys.iter().map(String::as_str).collect(), sensors, &homes);
            changes.removed.iter().for_each(|id| drop(self.0.remove(id)));
            for page in changes.written {
                // As it is stored and read again.
                let stored = RawDocumentBuf::from_bytes(page.encoded()).unwrap();
                self.0.insert(page.id(), GroupPage::of(&stored).unwrap());
            }
        }

        /// Who is where, once each.
        fn members(&self) -> BTreeMap<String, String> {
            let mut found = BTreeMap::new();
            for page in self.0.values() {
                assert!(!page.members.is_empty() && page.members.len() <= MEMBERS_MAX, "{}", page.id());
                for key in page.keys() {
                    assert!(found.insert(key.to_owned(), page.place.1.to_string()).is_none(), "{key} twice");
                }
            }
            found
        }
    }

    #[test]
    fn members_are_where_a_plain_model_has_them_whoever_comes_moves_and_leaves() {
        let sites = [Some("lab"), Some("roof"), Some("a b"), Some("lab "), None];
        let (mut kept, mut model) = (Kept::default(), BTreeMap::new());
        let mut seed = 7_u64;
        let mut random = |below: usize| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            usize::try_from(seed >> 33).unwrap() % below
        };
        for step in 0..400 {
            // Sometimes many of one site, so that documents are split, and sometimes many that leave.
            let (most, site, gone) =
                if step % 3 == 0 { (150, Some(random(5)), random(4) == 0) } else { (9, None, false) };
            let mut now: BTreeMap<String, Option<GroupedSensor>> = BTreeMap::new();
            for _ in 0..most {
                let number = random(1500);
                let changed = sensor(number, sites[site.unwrap_or_else(|| random(5))]);
                now.insert(changed.key.clone(), (!gone && random(12) > 0).then_some(changed));
            }
            let keys: Vec<String> = now.keys().cloned().collect();
            for (key, changed) in &now {
                match changed.as_ref().and_then(|sensor| sensor.places.first()) {
                    Some((_, site)) => drop(model.insert(key.clone(), site.to_string())),
                    None => drop(model.remove(key)),
                }
            }
            let there: Vec<GroupedSensor> = now.into_values().flatten().collect();
            kept.settle(&keys, &there);
            assert_eq!(kept.members(), model, "step {step}");
            let before = kept.0.clone();
            kept.settle(&keys, &there);
            assert_eq!(kept.0, before, "again changes nothing");
        }
        assert!(kept.0.len() > 8, "{} documents", kept.0.len());
    }

    #[test]
    fn a_sensor_says_where_it_is_a_member() {
        let mut document = doc! {
            "_id": "m,s=1", "schemaVersion": 1, "measurement": "m", "tags": { "s": "1" }, "fields": { "v": "number" },
            "meta": { "site": "lab" }, "groups": { "site": "roof" }, "latest": { "v": "x".repeat(LATEST_BYTES) },
        };
        let read = |document: &Document| {
            let rules = [rule("site", "meta.site"), rule("s", "s")];
            GroupedSensor::of(&RawDocumentBuf::try_from(document).unwrap(), &[&rules[0], &rules[1]]).unwrap()
        };
        let sensor = read(&document);
        assert!(!sensor.is_marked && sensor.member.len() < 100, "what is too large is left out");
        assert_eq!(sensor.mark(), doc! { "$set": { "groups": { "site": "lab", "s": "1" } } });
        document.insert("groups", doc! { "s": "1", "site": "lab" });
        assert!(read(&document).is_marked);
        document.insert("fields", doc! {});
        let sensor = read(&document);
        assert!(!sensor.is_marked && sensor.places.is_empty(), "without readings");
        assert_eq!(sensor.mark(), doc! { "$unset": { "groups": 1 } });
    }
}
