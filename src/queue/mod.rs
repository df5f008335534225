//! The sending queue in front of every network exporter.
