"""How a request travels the wire: sessions, adapters, connections, answers, streams. With requests and urllib3."""
