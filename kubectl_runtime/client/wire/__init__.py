"""How a request travels the wire: sessions, adapters, connections, answers, streams. Imports requests and urllib3."""
